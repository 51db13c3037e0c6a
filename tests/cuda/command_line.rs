//! The program on the driver without a GPU: `--device` of its verbs.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::fake::built;

fn images(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    towtank::synth::write_folder(folder.path(), count, 1, |_| ()).unwrap();
    folder
}

fn towtank(cache: &Path, driver: bool, args: &[&str]) -> Output {
    program(cache, driver).args(args).output().unwrap()
}

/// The program, with the driver, or with none at all.
fn program(cache: &Path, driver: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towtank"));
    command.env("XDG_CACHE_HOME", cache).env_remove("RANK").env_remove("WORLD_SIZE");
    match driver {
        true => command.env("LD_LIBRARY_PATH", built().parent().unwrap()).env("FAKE_CUDA_BYTES_PER_S", "200000000"),
        false => command.env_remove("LD_LIBRARY_PATH"),
    };
    command
}

const SETS: [&str; 12] = [
    "--set",
    "loader.epochs=1",
    "--set",
    "loader.batch=4",
    "--set",
    "loader.size=32",
    "--set",
    "loader.threads=2",
    "--set",
    "consumer.step=1 ms",
    "--set",
    "loader.tail=pad",
];

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn ranks_run_on_the_gpus_that_are_named() {
    let (cache, images) = (tempfile::tempdir().unwrap(), images(24));
    let data = images.path().to_str().unwrap();
    for (device, ranks, words) in [("cuda:1,pageable", "1", "cuda:1"), ("cuda:all", "3", "cuda:0, cuda:1")] {
        let named = ["run", "quickstart", "--json", "--data", data, "--device", device, "--ranks", ranks, "--gpu-share", "50"];
        let output = towtank(cache.path(), true, &[&named[..], &SETS].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = json(&output);
        assert_eq!(report["measured"]["device"], words);
        assert_eq!(report["measured"]["delivered"], 24);
    }
    // A process for each rank, as a launcher starts them: each on a GPU of its own.
    let named = ["run", "quickstart", "--json", "--data", data, "--device", "cuda:all"];
    let mut command = program(cache.path(), true);
    command.envs([("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")]).env_remove("MASTER_ADDR");
    let output = command.args([&named[..], &SETS].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json(&output)["measured"]["device"], "cuda:1");
}

#[test]
fn a_scenario_has_its_batches_normalized_on_the_gpu_and_nowhere_else() {
    let (cache, images) = (tempfile::tempdir().unwrap(), images(24));
    let data = images.path().to_str().unwrap();
    let staged = ["run", "quickstart", "--json", "--data", data, "--set", "loader.device_stage=normalize"];
    let output = towtank(cache.path(), true, &[&staged[..], &SETS, &["--device", "cuda:0"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured = &json(&output)["measured"];
    assert_eq!(measured["delivered"], 24);
    let stages = measured["stages"].as_array().unwrap();
    let stage = stages.iter().find(|stage| stage["name"] == "device").unwrap_or_else(|| panic!("{stages:?}"));
    assert_eq!(stage["servers"], 1, "{stage}");
    let output = towtank(cache.path(), true, &[&staged[..], &SETS].concat());
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("the stage `normalize` runs on a GPU") && error.contains("`--device cuda:0`"), "{error}");
}

#[test]
fn a_model_of_the_gpus_says_what_the_driver_was_told_to_take() {
    let (cache, images) = (tempfile::tempdir().unwrap(), images(24));
    let (data, out) = (images.path().to_str().unwrap(), cache.path().join("node.toml"));
    let model = out.to_str().unwrap();
    let args =
        ["calibrate", "--quick", "--device", "cuda:all", "--data", data, "--set", "loader.size=32", "--out", model, "--json"];
    let output = towtank(cache.path(), true, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = json(&output);
    assert_eq!(found["gpus"]["names"], serde_json::json!(["GPU 0 that is none", "GPU 1 that is none"]));
    assert_eq!(found["machine"]["device"]["kind"], "cuda");
    let model = towtank::model::load(model).expect("a model");
    let links = model.device.links.expect("links");
    let rate = links.link.value.as_bytes_per_s();
    // It never takes less than it was told to.
    assert!((50_000_000..=210_000_000).contains(&rate), "{rate}");
    assert_eq!((links.devices.value.0, links.devices_per_uplink.value.0), (2, 1));
    let normalize = model.kernels["normalize"].per_byte.as_ref().expect("its bytes take time").value.as_fs();
    assert!(normalize > 0, "the driver computes on the host");

    let simulated = ["sim", "quickstart", "--json", "--set", "machine=node.toml", "--set", "loader.device_stage=normalize"];
    let output = Command::new(env!("CARGO_BIN_EXE_towtank")).current_dir(cache.path()).args(simulated).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn devices_that_cannot_be_had_are_errors_with_a_way_out() {
    let cache = tempfile::tempdir().unwrap();
    let refused = |driver: bool, args: &[&str]| {
        let output = towtank(cache.path(), driver, args);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = refused(true, &["run", "quickstart", "--device", "cuda:7"]);
    assert!(error.contains("there is no GPU number 7: the driver knows 2") && error.contains("`--device cuda:all`"), "{error}");
    let error = refused(true, &["run", "quickstart", "--device", "tpu"]);
    assert!(error.contains("`tpu` is no device"), "{error}");
    let linked = ["run", "quickstart", "--device", "cuda:0", "--set", "consumer.link=1 GB/s"];
    let error = refused(true, &linked);
    assert!(error.contains("a GPU has one of its own"), "{error}");
    let error = refused(true, &["calibrate", "--quick", "--device", "cuda:0"]);
    assert!(error.contains("--out FILE"), "{error}");
    // Where this computer has a driver of its own there is nothing to refuse.
    if !Path::new("/dev/nvidiactl").exists() {
        let error = refused(false, &["run", "quickstart", "--device", "cuda:0"]);
        assert!(error.contains("no CUDA driver") && error.contains("`--device host` needs none"), "{error}");
    }
}

#[test]
fn a_gpu_whose_memory_is_full_is_told_with_what_helps() {
    let (cache, images) = (tempfile::tempdir().unwrap(), images(24));
    let data = images.path().to_str().unwrap();
    let named = ["run", "quickstart", "--data", data, "--device", "cuda"];
    let output =
        program(cache.path(), true).env("FAKE_CUDA_CAPACITY", "4096").args([&named[..], &SETS].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("CUDA_ERROR_OUT_OF_MEMORY") && told.contains("hint: a smaller `loader.batch`"), "{told}");
}

#[test]
fn a_prediction_for_a_gpu_that_is_judged_on_the_host_is_noted() {
    let (cache, images) = (tempfile::tempdir().unwrap(), images(24));
    let (data, frozen) = (images.path().to_str().unwrap(), cache.path().join("frozen.json"));
    let frozen = frozen.to_str().unwrap();
    let predict = ["sim", "quickstart", "--data", data, "--set", "machine=p4d.24xlarge", "--freeze", frozen];
    let output = towtank(cache.path(), true, &[&predict[..], &SETS].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let noted = |device: &[&str]| {
        let output =
            towtank(cache.path(), true, &[&["compare", "--frozen", frozen, "--data", data, "--intervals", "0"], device].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        told.contains("note: the prediction was frozen for a GPU, and this run goes to the host")
    };
    assert!(noted(&[]));
    assert!(!noted(&["--device", "cuda:0"]));
}
