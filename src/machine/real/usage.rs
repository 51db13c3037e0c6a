//! What the process uses: CPU time and memory, as the kernel counts them.

use std::{fs, io};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CPU time that all threads of this process have used so far, user and system \[ns\].
pub fn process_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time that the calling thread has used so far, user and system \[ns\]. A system call of some 200 ns.
pub fn thread_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ThreadCPUTime))
}

fn ns(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Peak resident memory of this process from a mark on.
#[derive(Clone, Copy, Debug)]
pub struct PeakRss {
    reset: bool,
}

impl PeakRss {
    /// Sets the mark. Where the kernel does not allow it, the peak is that of the process's whole life, as
    /// [`is_since_mark`](PeakRss::is_since_mark) then tells.
    pub fn mark() -> PeakRss {
        // 5 resets the high-water mark and nothing else.
        PeakRss { reset: fs::write("/proc/self/clear_refs", "5").is_ok() }
    }

    /// Whether the peak is counted from the mark on, not from the start of the process.
    pub fn is_since_mark(self) -> bool {
        self.reset
    }

    /// The peak so far \[B\].
    ///
    /// # Errors
    ///
    /// When the system has no `/proc/self/status` in the form of Linux.
    pub fn bytes(self) -> io::Result<u64> {
        status_bytes("VmHWM:")
    }
}

/// Resident memory of this process now \[B\].
///
/// # Errors
///
/// As [`PeakRss::bytes`].
pub fn resident_bytes() -> io::Result<u64> {
    status_bytes("VmRSS:")
}

fn status_bytes(field: &str) -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("/proc/self/status has no `{field} … kB`")))
}

/// What the processors of this computer do while this process runs, by the books of the kernel in steps of a hundredth of a second.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    busy_ns: u64,
    all_ns: u64,
    own_ns: u64,
}

impl Neighbours {
    /// Begins to look. `None` when the system has no `/proc/stat` in the form of Linux.
    pub fn mark() -> Option<Neighbours> {
        let (busy_ns, all_ns) = processors_ns(&fs::read_to_string("/proc/stat").ok()?, rustix::param::clock_ticks_per_second())?;
        Some(Neighbours { busy_ns, all_ns, own_ns: process_cpu_ns() })
    }

    /// What others have used since, stolen time too, and what there was: as a part of all processor time. `None` when too little time
    /// has passed to tell.
    pub fn shares(self) -> Option<Shares> {
        let now = Neighbours::mark()?;
        let all = now.all_ns.checked_sub(self.all_ns).filter(|ns| *ns >= LEAST_NS)? as f64;
        let (busy, own) = (now.busy_ns.saturating_sub(self.busy_ns) as f64, (now.own_ns - self.own_ns) as f64);
        Some(Shares { others: ((busy - own) / all).clamp(0.0, 1.0), busy: (busy / all).min(1.0) })
    }
}

/// Parts of all processor time, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Used by other processes, and by other guests of the same host as far as the kernel knows.
    pub others: f64,
    /// Used by anybody.
    pub busy: f64,
}

/// Less processor time than this is too coarse in steps of a hundredth of a second \[ns\].
const LEAST_NS: u64 = 200_000_000;

/// Busy and all time of all processors \[ns\], from the text of `/proc/stat`.
fn processors_ns(stat: &str, ticks_per_s: u64) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // User, nice, system, idle, waiting for a disk, interrupts, soft interrupts, stolen; what guests use is in the first two already.
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let [user, nice, system, idle, io, hard, soft, stolen] = ticks[..] else { return None };
    let busy = user + nice + system + hard + soft + stolen;
    let ns = |ticks: u64| ticks.saturating_mul(1_000_000_000 / ticks_per_s.max(1));
    Some((ns(busy), ns(busy + idle + io)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_cpu_time_of_its_thread_and_process() {
        // The process before the thread: what passes between the two looks counts for the process.
        let process = process_cpu_ns();
        let thread = thread_cpu_ns();
        let mut x = 1_u64;
        while thread_cpu_ns() - thread < 2_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_cpu_ns() - process >= 2_000_000);
    }

    #[test]
    fn the_books_of_the_kernel_are_read_as_it_writes_them() {
        let stat = "cpu  100 20 30 1000 50 1 2 7 5 0\ncpu0 1 2 3\n";
        assert_eq!(processors_ns(stat, 100), Some((1_600_000_000, 12_100_000_000)));
        assert_eq!(processors_ns("cpu  1 2 3\n", 100), None);
        assert_eq!(processors_ns("", 100), None);
    }

    #[test]
    fn shares_are_parts_of_a_whole() {
        let mark = Neighbours { busy_ns: 0, all_ns: 0, own_ns: process_cpu_ns() };
        let shares = mark.shares().expect("the computer has been on for a while");
        assert!((0.0..=1.0).contains(&shares.others) && shares.others <= shares.busy + 1e-9, "{shares:?}");
        assert_eq!(Neighbours::mark().expect("Linux").shares(), None, "too soon");
    }

    #[test]
    fn memory_that_is_touched_and_freed_shows_in_the_peak_only() {
        let mark = PeakRss::mark();
        let before = resident_bytes().expect("Linux");
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let peak = mark.bytes().expect("Linux");
        assert!(peak >= before.saturating_sub(8 << 20) + (64 << 20), "peak {peak} after 64 MiB on top of {before}");
    }
}
