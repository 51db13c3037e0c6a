//! Which processors and which memory are near a device.

use std::{fs, path::Path};

/// The processors next to the PCI device `place` (`0000:3b:00.0`), where the computer has several memory nodes and the kernel tells.
pub fn local_processors(place: &str) -> Option<Vec<usize>> {
    of(Path::new("/sys"), place)
}

fn of(sys: &Path, place: &str) -> Option<Vec<usize>> {
    let nodes = fs::read_to_string(sys.join("devices/system/node/online")).ok()?;
    if numbers(&nodes)?.len() < 2 {
        return None;
    }
    let list = fs::read_to_string(sys.join("bus/pci/devices").join(place).join("local_cpulist")).ok()?;
    numbers(&list).filter(|processors| !processors.is_empty())
}

/// `0-2,5` is 0, 1, 2 and 5.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    let ranges: Option<Vec<_>> = list.trim().split(',').filter(|part| !part.is_empty()).map(part).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Runs `f` on one of `processors`, so that memory that it is the first to touch is near them; on any where there are none, or the system
/// does not allow it.
#[cfg(target_os = "linux")]
pub fn run_near<T>(processors: Option<&[usize]>, f: impl FnOnce() -> T) -> T {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let before = processors.and_then(|processors| {
        let mut near = CpuSet::new();
        processors.iter().filter(|processor| **processor < CpuSet::MAX_CPU).for_each(|processor| near.set(*processor));
        let before = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &near).ok().map(|()| before)
    });
    let value = f();
    if let Some(before) = before {
        // It was allowed a moment ago; if it no longer is, the thread stays where it is near.
        let _ = sched_setaffinity(None, &before);
    }
    value
}

/// Runs `f`.
#[cfg(not(target_os = "linux"))]
pub fn run_near<T>(_processors: Option<&[usize]>, f: impl FnOnce() -> T) -> T {
    f()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_there_are_several_nodes_some_processors_are_near() {
        let sys = tempfile::tempdir().unwrap();
        let (nodes, gpu) = (sys.path().join("devices/system/node"), sys.path().join("bus/pci/devices/0000:3b:00.0"));
        fs::create_dir_all(&nodes).unwrap();
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("local_cpulist"), "24-26,72\n").unwrap();
        assert_eq!(of(sys.path(), "0000:3b:00.0"), None, "no nodes told");
        fs::write(nodes.join("online"), "0\n").unwrap();
        assert_eq!(of(sys.path(), "0000:3b:00.0"), None, "one node");
        fs::write(nodes.join("online"), "0-1\n").unwrap();
        assert_eq!(of(sys.path(), "0000:3b:00.0"), Some(vec![24, 25, 26, 72]));
        assert_eq!(of(sys.path(), "0000:af:00.0"), None, "no such device");
        fs::write(gpu.join("local_cpulist"), "x\n").unwrap();
        assert_eq!(of(sys.path(), "0000:3b:00.0"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_is_near_while_it_runs_and_back_afterwards() {
        let may = || {
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect::<Vec<_>>()
        };
        let all = may();
        let last = *all.last().unwrap();
        assert_eq!(run_near(Some(&[last]), may), [last]);
        assert_eq!(may(), all);
        assert_eq!(run_near(None, may), all);
        assert_eq!(run_near(Some(&[rustix::thread::CpuSet::MAX_CPU]), may), all, "there is no such processor");
    }
}
