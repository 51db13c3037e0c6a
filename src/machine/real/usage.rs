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
    fn memory_that_is_touched_and_freed_shows_in_the_peak_only() {
        let mark = PeakRss::mark();
        let before = resident_bytes().expect("Linux");
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let peak = mark.bytes().expect("Linux");
        assert!(peak >= before.saturating_sub(8 << 20) + (64 << 20), "peak {peak} after 64 MiB on top of {before}");
    }
}
