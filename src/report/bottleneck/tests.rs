use super::*;
use crate::trace::oracle::Toy;

fn load(resource: Resource, share: f64) -> Load {
    Load { resource, name: resource.name().to_owned(), share }
}

fn loads(all: &[(Resource, f64)]) -> Evidence {
    let loads = all.iter().map(|(resource, share)| load(*resource, *share)).collect();
    Evidence { delivered: 1, loads, lane_count: 8, cpu_stage: "decode".to_owned(), ..Evidence::default() }
}

fn name(evidence: Evidence) -> String {
    evidence.judge(&Bounds::default()).name
}

#[test]
fn nothing_delivered_is_no_bottleneck() {
    assert_eq!(name(Evidence { delivered: 0, ..loads(&[(Resource::Decode, 1.0)]) }), "none");
}

#[test]
fn the_busiest_saturated_thing_is_the_bottleneck() {
    use Resource::*;
    assert_eq!(name(loads(&[(Consumer, 0.5), (Decode, 0.98), (Transfer, 0.91)])), "decode");
    assert_eq!(name(loads(&[(Consumer, 0.99), (Decode, 0.6)])), "consumer");
    assert_eq!(name(loads(&[(Consumer, 0.3), (Decode, 0.3), (Fetch, 0.97)])), "fetch");
    assert_eq!(name(loads(&[(Consumer, 0.3), (Transfer, 0.97)])), "transfer");
    assert_eq!(name(loads(&[(Consumer, 0.3), (Scheduler, 0.97)])), "scheduler");
}

#[test]
fn two_of_the_same_height_are_balanced() {
    use Resource::*;
    let tied = loads(&[(Decode, 0.95), (Consumer, 0.95)]).judge(&Bounds::default());
    assert_eq!((tied.name.as_str(), tied.between), ("balanced", vec!["consumer".to_owned(), "decode".to_owned()]));
    let near = loads(&[(Decode, 0.96), (Consumer, 0.94)]).judge(&Bounds::default());
    assert_eq!((near.name.as_str(), near.between), ("balanced", vec!["decode".to_owned(), "consumer".to_owned()]));
    assert_eq!(name(loads(&[(Decode, 0.96), (Consumer, 0.92)])), "decode");
    assert_eq!(name(loads(&[(Decode, 0.91), (Consumer, 0.89)])), "decode", "what is not saturated does not limit");
}

#[test]
fn a_stores_link_and_connections_are_one_limit() {
    let mut evidence = loads(&[(Resource::Fetch, 0.97)]);
    evidence.loads.push(Load { resource: Resource::Fetch, name: "store link".to_owned(), share: 0.98 });
    let found = evidence.judge(&Bounds::default());
    assert_eq!(found.name, "fetch");
    assert!(found.why.starts_with("Store link is at 98.0 %"), "{}", found.why);
}

#[test]
fn a_users_stage_is_named() {
    let mut evidence = loads(&[]);
    evidence.loads.push(Load { resource: Resource::Decode, name: "tokenize".to_owned(), share: 0.98 });
    assert_eq!(name(evidence), "tokenize");
}

#[test]
fn lanes_tell_what_keeps_a_loader_that_nothing_saturates() {
    let idle = [(Resource::Consumer, 0.4), (Resource::Decode, 0.5)];
    let of = |lanes: LaneTime| name(Evidence { lanes, ..loads(&idle) });
    assert_eq!(of(LaneTime { ledger: 0.4, fetch: 0.5, ..LaneTime::default() }), "memory");
    assert_eq!(of(LaneTime { slot: 0.3, fetch: 0.5, ..LaneTime::default() }), "memory");
    assert_eq!(of(LaneTime { ledger: 0.2, fetch: 0.7, core: 0.1, ..LaneTime::default() }), "fetch");
    assert_eq!(of(LaneTime { fetch: 0.3, core: 0.6, ..LaneTime::default() }), "lanes");
}

#[test]
fn a_store_known_to_have_room_leaves_the_lanes() {
    let evidence = loads(&[(Resource::Consumer, 0.4), (Resource::Fetch, 0.3)]);
    let lanes = LaneTime { fetch: 0.8, core: 0.1, ..LaneTime::default() };
    assert_eq!(name(Evidence { lanes, ..evidence.clone() }), "fetch", "connections are no bandwidth");
    assert_eq!(name(Evidence { lanes, store_known: true, ..evidence }), "lanes");
}

#[test]
fn a_store_at_its_bandwidth_is_the_bottleneck_however_few_its_reads() {
    let toy = Toy { samples: 2000, lanes: 8, fetch_ns: 5_000_000, step_ns: 100_000, ..Toy::default() };
    let summary = Summary::of(&toy.events());
    let fetched = summary.stage(StageId::FETCH).expect("it reads").bytes() as f64;
    let of = |share: f64| {
        let most = fetched / (summary.working_ns() as f64 / 1e9) / share;
        let limits = vec![(StageId::FETCH, 64)];
        let facts = Facts { lanes: 8, threads: 2, limits, store_bytes_per_s: Some(most), ..Facts::default() };
        Evidence::of(&summary, &facts, |_| String::new()).judge(&Bounds::default())
    };
    assert_eq!((of(0.95).name.as_str(), of(0.5).name.as_str()), ("fetch", "lanes"));
}

#[test]
fn what_limits_next_is_not_what_limits_now() {
    let toy = Toy { samples: 2000, decode_ns: 1_000_000, ..Toy::default() };
    let summary = Summary::of(&toy.events());
    let facts = Facts { lanes: 8, threads: 2, reads_on_pool: true, ..Facts::default() };
    let named = |id: StageId| id.name().unwrap_or("user's").to_owned();
    let bounds = Bounds::of(&summary, &facts, named);
    assert_eq!(bounds.limits[0].name, "cores");
    let found = Evidence::of(&summary, &facts, named).judge(&bounds);
    assert_eq!((found.name.as_str(), found.next.map(|n| n.name)), ("decode", Some("consumer".to_owned())));
}

fn of_toy(toy: &Toy) -> Bottleneck {
    let (threads, lanes) = (toy.servers as u32, toy.lanes as u32);
    let facts = Facts { threads, lanes, copies: 1, ..Facts::default() };
    let named = |id: StageId| id.name().unwrap_or("user's").to_owned();
    let summary = Summary::of(&toy.events());
    Evidence::of(&summary, &facts, named).judge(&Bounds::of(&summary, &facts, named))
}

#[test]
fn each_bottleneck_is_found_in_the_trace_of_a_loader_that_has_it() {
    let samples = 2000;
    let slow = Toy { samples, fetch_ns: 100_000, decode_ns: 50_000, transfer_ns: 20_000, step_ns: 100_000, ..Toy::default() };
    let decode = of_toy(&Toy { decode_ns: 1_000_000, ..slow });
    let consumer = of_toy(&Toy { step_ns: 9_000_000, ..slow });
    let transfer = of_toy(&Toy { transfer_ns: 9_000_000, ..slow });
    let fetch = of_toy(&Toy { fetch_ns: 5_000_000, ..slow });
    assert_eq!([&decode, &consumer, &transfer, &fetch].map(|b| b.name.as_str()), ["decode", "consumer", "transfer", "fetch"]);
    insta::assert_snapshot!([decode, consumer, transfer, fetch].map(|b| format!("{}\n{}", b.why, b.relief)).join("\n\n"));
}
