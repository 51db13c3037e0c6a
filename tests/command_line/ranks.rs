//! Several ranks: in one process, and as processes of their own.

use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use super::{report, stderr, towtank};

/// Variables that a launcher sets.
const LAUNCHED: [&str; 8] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
];

/// A folder of so many images.
fn images(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    towtank::synth::write_folder(folder.path(), count, 1, |_| ()).unwrap();
    folder
}

/// A quick run on these images.
fn run(data: &Path, more: &[&str]) -> Command {
    let sets = [
        "loader.epochs=1",
        "loader.batch=4",
        "loader.size=32",
        "loader.threads=2",
        "loader.tail=pad",
        "consumer.step=1 ms",
        "store.kind=page-cache",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_towtank"));
    for name in LAUNCHED {
        command.env_remove(name);
    }
    command.args(["run", "quickstart", "--json", "--data"]).arg(data).args(sets.iter().flat_map(|set| ["--set", set])).args(more);
    command
}

/// A process of a job, which has begun.
fn launched(mut command: Command, variables: &[(&str, &str)]) -> Child {
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn free_port() -> String {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string()
}

fn column(ranks: &Value, key: &str) -> Vec<u64> {
    ranks.as_array().unwrap().iter().map(|rank| rank[key].as_u64().unwrap()).collect()
}

/// The samples whose images a trace shows as read.
fn read(trace: &Path) -> Vec<u64> {
    let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let fetched = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "fetch");
    fetched.filter_map(|event| event["args"]["sample"].as_u64()).collect()
}

#[test]
fn ranks_run_in_one_process_as_they_are_simulated() {
    let data = images(30);
    let folder = tempfile::tempdir().unwrap();
    let (page, trace) = (folder.path().join("page.html"), folder.path().join("trace.json"));
    let files = ["--html", page.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
    let output = run(data.path(), &[&["--ranks", "4"], &files[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = report(&output);
    let measured = &told["measured"];
    assert_eq!(measured["delivered"], 32, "two of them are padding");
    assert_eq!(column(&measured["ranks"], "rank"), [0, 1, 2, 3]);
    assert_eq!((column(&measured["ranks"], "samples"), column(&measured["ranks"], "steps")), (vec![8; 4], vec![2; 4]));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>Ranks</h2>") && page.contains("rank 3"), "each rank has a line");
    let trace_text = fs::read_to_string(&trace).unwrap();
    assert!((1..4).all(|rank| trace_text.contains(&format!(", rank {rank}\""))), "each rank has its tracks");
    let all = read(&trace);
    assert_eq!((all.len(), all.into_iter().collect::<BTreeSet<_>>()), (32, (0..30).collect()));

    let simulated = towtank(&[
        "sim",
        "slow-consumer",
        "--json",
        "--ranks",
        "4",
        "--set",
        "dataset.count=160",
        "--set",
        "loader.budget=256 MiB",
    ]);
    assert_eq!(column(&report(&simulated)["simulated"]["ranks"], "samples"), [40; 4], "{}", stderr(&simulated));
    let one = run(data.path(), &[]).output().unwrap();
    assert!(report(&one)["measured"].get("ranks").is_none(), "one rank alone needs no list");
}

#[test]
fn a_bound_on_memory_is_one_for_each_loader() {
    let quickstart = |max: &str| {
        let max = format!("expect.peak_bytes_in_flight.max={max}");
        towtank(&["sim", "quickstart", "--set", "machine=reference-2core", "--ranks", "8", "--json", "--set", &max])
    };
    let output = quickstart("256 MiB");
    assert_eq!(output.status.code(), Some(0), "each of eight has a budget of 256 MiB: {}", stderr(&output));
    let simulated = report(&output)["simulated"].clone();
    let peaks = column(&simulated["ranks"], "peak_bytes_in_flight");
    let (all, most) = (simulated["peak_bytes_in_flight"].as_u64().unwrap(), *peaks.iter().max().unwrap());
    assert!(most <= 256 << 20 && all > 256 << 20 && all <= peaks.iter().sum(), "{all} bytes of all, {peaks:?} of each");
    let output = quickstart(&format!("{} B", most - 1));
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    let rank = peaks.iter().position(|peak| *peak == most).unwrap();
    let found = format!("`expect.peak_bytes_in_flight` does not hold: found {most} B in rank {rank}");
    assert!(told.contains(&found), "{told}");
}

#[test]
fn more_than_a_process_can_have_is_refused_by_name() {
    for (more, told) in [
        (&["--ranks", "65535"][..], ["`ranks.count = 65_535` can be simulated, and not run", "at most 1024"]),
        (&["--set", "loader.threads=5000"], ["`loader.threads = 5000` can be simulated, and not run", "at most 4096"]),
        (
            &["--set", "store.kind=emulated", "--set", "store.connections=5000"],
            ["`store.connections = 5000` can be simulated, and not run", "at most 4096"],
        ),
        (&["--set", "loader.threads=1048576"], ["`loader.threads` is too large", "at most 65_536"]),
    ] {
        let output = run(Path::new("nowhere"), more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(told.iter().all(|words| stderr(&output).contains(words)), "{}", stderr(&output));
    }
    let explain = |more: &[&str]| towtank(&[&["explain", "quickstart", "--set", "machine=reference-2core"], more].concat());
    let output = explain(&["--set", "loader.threads=1048576"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("loader.threads=1048576"), "{}", stderr(&output));
    let output = explain(&["--set", "loader.lanes=1000000", "--set", "ranks.count=100"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("1_000_000 lanes for each of 100 ranks are 100_000_000 in all"), "{}", stderr(&output));
}

#[test]
fn a_rank_that_fails_is_named() {
    let data = images(8);
    fs::write(data.path().join("bad.jpg"), "no image").unwrap();
    let output = run(data.path(), &["--ranks", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("the loader of rank ") && told.contains("bad.jpg"), "{told}");
}

#[test]
fn ranks_on_several_nodes_are_only_simulated() {
    let output = run(Path::new("nowhere"), &["--ranks", "4", "--set", "ranks.per_node=2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains("ranks on 2 nodes can be simulated, and not run") && told.contains("ranks.per_node=4"), "{told}");
}

#[test]
fn processes_take_their_ranks_from_the_environment_and_share_the_epoch() {
    let data = images(21);
    let folder = tempfile::tempdir().unwrap();
    // All have the same command line, and files of their own.
    let (trace, port) = (|rank: &str| folder.path().join(format!("run.rank{rank}.json")), free_port());
    let meet = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
    for variables in [&meet[..], &[]] {
        let start = |rank: &'static str| {
            let command = run(data.path(), &["--trace", folder.path().join("run.json").to_str().unwrap()]);
            launched(command, &[&[("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank)], variables].concat())
        };
        let ended = ["0", "1"].map(start).map(|child| child.wait_with_output().unwrap());
        for (rank, output) in (0..).zip(&ended) {
            let told = stderr(output);
            assert_eq!(output.status.code(), Some(0), "{told}");
            assert!(told.contains(&format!("trace written to `{}`", trace(&rank.to_string()).display())), "{told}");
            assert!(told.contains(&format!("note: rank {rank} of 2, local rank {rank}, as the environment says; it ")), "{told}");
            let ranks = report(output)["measured"]["ranks"].clone();
            assert_eq!(
                (column(&ranks, "rank"), column(&ranks, "samples"), column(&ranks, "steps")),
                (vec![rank], vec![11], vec![3])
            );
        }
        let [mine, theirs] = ["0", "1"].map(|rank| read(&trace(rank)).into_iter().collect::<BTreeSet<_>>());
        assert_eq!(mine.union(&theirs).copied().collect::<BTreeSet<_>>(), (0..21).collect(), "together they are the epoch");
        assert!(mine.intersection(&theirs).count() <= 1, "but for the sample that pads");
        ["0", "1"].into_iter().for_each(|rank| fs::remove_file(trace(rank)).unwrap());
    }
}

#[test]
fn a_process_that_ends_early_leaves_the_others_to_their_steps() {
    let data = images(24);
    let port = free_port();
    let start = |rank: &'static str| {
        // Rank 0, at which all meet, leaves after one batch.
        let more: &[&str] = if rank == "0" { &["--set", "consumer.leave_after=1"] } else { &[] };
        let meet = [("RANK", rank), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
        launched(run(data.path(), more), &meet)
    };
    let steps = ["0", "1", "2"].map(start).map(|child| {
        let output = child.wait_with_output().unwrap();
        column(&report(&output)["measured"]["ranks"], "steps")[0]
    });
    assert_eq!(steps, [1, 2, 2]);
}

#[test]
fn a_process_that_is_killed_ends_the_others_and_is_named() {
    let (data, port) = (images(24), free_port());
    let start = |rank: &'static str| {
        let meet = [("RANK", rank), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
        // Steps of rank 1 never end, so that it is in one when it is killed.
        let step = if rank == "1" { "consumer.step=1000 s" } else { "consumer.step=1 ms" };
        launched(run(data.path(), &["--set", step]), &meet)
    };
    // Rank 0 listens until all have met.
    let listens = || TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok();
    let mut first = start("0");
    let mut wait = |listening: bool| {
        while listens() != listening && first.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
    };
    wait(true);
    let [mut killed, second] = ["1", "2"].map(start);
    wait(false);
    killed.kill().unwrap();
    killed.wait().unwrap();
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("rank 1 is lost: its process ended without a goodbye"), "{}", stderr(&output));
    }
}

#[test]
fn processes_of_two_jobs_at_one_port_do_not_mix() {
    let (data, port) = (images(8), free_port());
    let start = |rank: &'static str, more: &[&str]| {
        let meet = [("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
        launched(run(data.path(), more), &meet)
    };
    let first = start("0", &[]);
    let other = start("1", &["--set", "loader.batch=2"]).wait_with_output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    let told = stderr(&other);
    assert!(told.contains("sends this process away") && told.contains("`loader.batch` is 4 at rank 0 and 2 here"), "{told}");
    assert!(told.contains("hint: all processes of a job are started alike"), "{told}");
    let [first, second] = [first, start("1", &[])].map(|child| child.wait_with_output().unwrap());
    assert_eq!((first.status.code(), second.status.code()), (Some(0), Some(0)), "{}", stderr(&first));
    assert!(stderr(&first).contains("note: a process that is rank 1 from 127.0.0.1 was sent away"), "{}", stderr(&first));
}

#[test]
fn only_run_is_one_of_several_processes() {
    let told = |args: &[&str], code: i32| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_towtank")).args(args).envs([("RANK", "1"), ("WORLD_SIZE", "2")]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        stderr(&output)
    };
    let refused = told(&["compare", "quickstart"], 2);
    assert!(refused.contains("this process is rank 1 of 2") && refused.contains("`--ranks 2` compares"), "{refused}");
    let sim = told(&["sim", "slow-consumer"], 0);
    assert!(sim.contains("note: rank 1 of 2 in the environment changes nothing here: this process simulates all ranks"), "{sim}");
    let check = told(&["check", "slow-consumer", "--seeds", "1", "--samples", "4"], 0);
    assert!(check.contains("`--shard I/N` has each check a part"), "{check}");
}

#[test]
fn an_environment_that_makes_no_sense_is_refused() {
    let told = |more: &[&str], variables: &[(&str, &str)]| {
        let output = launched(run(Path::new("nowhere"), more), variables).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let beyond = told(&[], &[("RANK", "2"), ("WORLD_SIZE", "2")]);
    assert!(beyond.contains("RANK=2") && beyond.contains("expected a whole number from 0 to 1"), "{beyond}");
    let both = told(&["--ranks", "4"], &[("RANK", "1"), ("WORLD_SIZE", "2")]);
    assert!(both.contains("`ranks.count = 4` contradicts `WORLD_SIZE=2`") && both.contains("hint: `--ranks 1`"), "{both}");
}
