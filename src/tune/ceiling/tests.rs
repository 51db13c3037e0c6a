use super::*;
use crate::{
    advise,
    model::{Lock, Slowed},
    scenario::{self, Overrides},
    units::{ByteRate, Fraction, RequestRate},
};

const TEXT: &str = "title = \"limits\"\nmachine = \"reference-2core\"\n[dataset]\nkind = \"drawn\"\ncount = 512\n\
                    [loader]\nbatch = 16\nbudget = \"512 MiB\"\n[consumer]\nstep = \"10 ms\"\n";

/// Every figure of every setting tried, against its ceiling; how many ceilings were above nothing and below everything.
fn held(sets: &[&str], whole: bool) -> usize {
    let scenario = scenario::parse("limits.toml", TEXT, &Overrides::set(sets.iter().copied())).unwrap_or_else(|e| panic!("{e}"));
    let (mut machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
    if sets.contains(&"title=slowed") {
        let slowed = |busy, percent| Slowed { busy: Count(busy), by: Fraction::new(percent, "%") };
        machine.device.slowed = vec![slowed(1, 0.0), slowed(2, 60.0)];
    }
    if sets.contains(&"title=locked") {
        let held = Measured::plain(Fraction::new(30.0, "%"));
        machine.lock = Some(Lock { interval: None, held: [("decode".to_owned(), held)].into() });
    }
    if sets.contains(&"title=cached") {
        let disk = machine.stores.get_mut("disk").unwrap();
        (disk.cached, disk.iops) =
            (Some(Measured::plain(Fraction::new(60.0, "%"))), Some(Measured::plain(RequestRate::new(900.0, "requests/s"))));
        disk.rotation = Some(Measured::plain(Duration::new(8.0, "ms")));
        (disk.bandwidth, disk.connections) =
            (Some(Measured::plain(ByteRate::new(60.0, "MB/s"))), Some(Measured::plain(Count(4))));
    }
    let ceiling = Ceiling::of(&scenario, &machine, &samples).unwrap().expect("nothing forbids it");
    let mut tight = 0;
    for (threads, lanes, ring, prefetch) in [
        (1, 1, 16, 1),
        (1, 16, 64, 2),
        (2, 2, 16, 1),
        (2, 16, 32, 1),
        (2, 64, 128, 4),
        (3, 24, 64, 1),
        (5, 64, 64, 2),
        (16, 64, 64, 2),
        (48, 200, 256, 2),
    ] {
        let ranks = u64::from(scenario.ranks.count);
        let at = Settings { threads, lanes, ring, prefetch, budget_bytes: 2 << 30, ranks };
        let metrics = advise::figures(&at.on(&scenario), &machine, &samples).unwrap_or_else(|e| panic!("{e}"));
        for figure in [Figure::Throughput, Figure::AcceleratorUtilization] {
            let part = if whole { 1.0 } else { 0.999 };
            let (found, most) = (figure.of(&metrics, part).unwrap(), ceiling.of_figure(figure, &at, whole).unwrap());
            assert!(found <= most * (1.0 + 1e-9), "{sets:?} {at:?}: {figure:?} {found} above {most}");
            tight += usize::from(found > 0.8 * most && most < 0.99 * f64::from(scenario.ranks.count) * 1600.0);
        }
    }
    tight
}

#[test]
fn no_simulation_is_better_than_its_ceiling() {
    for whole in [true, false] {
        let mut tight = held(&[], whole);
        tight += held(&["store.kind=disk", "loader.shuffle=false"], whole);
        tight += held(&["store.kind=object", "store.first_byte=30 ms", "store.connections=12", "consumer.hold=2"], whole);
        tight += held(&["store.kind=object", "store.bandwidth=20 MB/s", "loader.order=completion", "loader.epochs=2"], whole);
        tight += held(&["machine=p4d.24xlarge", "store.kind=disk", "consumer.step=1 ms", "loader.decode_limit=3"], whole);
        tight +=
            held(&["machine=p4d.24xlarge", "store.kind=disk", "ranks.count=4", "loader.tail=drop", "consumer.step=2 ms"], whole);
        tight += held(&["title=cached", "store.kind=disk"], whole);
        tight += held(&["title=locked", "machine=p4d.24xlarge", "store.kind=disk", "consumer.step=1 ms"], whole);
        tight += held(&["title=slowed", "consumer.step=5 ms"], whole);
        assert!(tight >= 20, "ceilings that say something: {tight}");
    }
}

#[test]
fn where_the_work_is_not_the_same_there_is_no_ceiling() {
    for set in ["faults.undecodable=1 %", "loader.fetch_deadline=1 s", "consumer.leave_after=7"] {
        let scenario = scenario::parse("limits.toml", TEXT, &Overrides::set([set, "loader.errors=skip"])).unwrap();
        let (machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
        assert!(Ceiling::of(&scenario, &machine, &samples).unwrap().is_none(), "{set}");
    }
}
