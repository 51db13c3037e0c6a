//! What the operating system says of this computer's cores.

use std::{collections::BTreeSet, fs, path::Path};

use serde::Serialize;

/// The cores that this process may use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cores {
    /// Hardware threads that this process may run on, and may use in full: affinity and quota are taken into account.
    pub threads: usize,
    /// Physical cores that they belong to; `None` where the system does not tell.
    pub cores: Option<usize>,
    /// Cores' worth of CPU time that the control group may use, when it is limited: `cpu.max`.
    pub quota: Option<f64>,
}

impl Cores {
    /// Asks the operating system. What it does not tell is `None`.
    pub fn of_this_computer() -> Cores {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Cores { threads, cores: physical(&allowed()), quota: quota(Path::new("/sys/fs/cgroup"), "/proc/self/cgroup") }
    }

    /// In a few words, such as `2 hardware threads of 1 core`.
    pub fn words(&self) -> String {
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut words = plural(self.threads, "hardware thread");
        if let Some(cores) = self.cores {
            words.push_str(&format!(" of {}", plural(cores, "core")));
        }
        if let Some(quota) = self.quota {
            words.push_str(&format!(", with a quota of {quota:.2} cores"));
        }
        words
    }
}

/// Numbers of the processors that this process may run on.
fn allowed() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| numbers(list.trim())).unwrap_or_default()
}

/// `0-2,5` is 0, 1, 2 and 5.
fn numbers(list: &str) -> Vec<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    list.split(',').filter_map(part).flatten().collect()
}

/// How many cores these processors are: those with the same siblings are one.
fn physical(processors: &[usize]) -> Option<usize> {
    let siblings = |n: &usize| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list")).ok();
    let cores: Option<BTreeSet<String>> = processors.iter().map(siblings).collect();
    cores.map(|cores| cores.len()).filter(|n| *n > 0)
}

/// The tightest quota on the way from this process's control group to the root.
fn quota(root: &Path, membership: &str) -> Option<f64> {
    let groups = fs::read_to_string(membership).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut folder = root.join(own.trim_start_matches('/'));
    let mut least: Option<f64> = None;
    loop {
        let here = fs::read_to_string(folder.join("cpu.max")).ok().and_then(|text| cpu_max(&text));
        least = [least, here].into_iter().flatten().min_by(f64::total_cmp);
        if folder == root || !folder.pop() {
            return least;
        }
    }
}

/// `max 100000` is no limit, `150000 100000` is one and a half cores.
fn cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(numbers("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(numbers("7"), [7]);
        assert!(numbers("").is_empty());
    }

    #[test]
    fn the_tightest_quota_above_a_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("slice/job");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.path().join("slice/cpu.max"), "150000 100000\n").unwrap();
        let membership = root.path().join("cgroup");
        fs::write(&membership, "0::/slice/job\n").unwrap();
        assert_eq!(quota(root.path(), membership.to_str().unwrap()), Some(1.5));
        fs::write(group.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(quota(root.path(), membership.to_str().unwrap()), Some(0.5));
        assert_eq!(quota(root.path(), "/no/such/file"), None);
    }

    #[test]
    fn this_computer_has_no_more_cores_than_threads() {
        let here = Cores::of_this_computer();
        assert!(here.threads >= 1 && here.cores.is_none_or(|cores| cores >= 1), "{here:?}");
        assert!(!here.words().is_empty());
    }
}
