//! What this process has used so far: processor time, memory, bytes moved. For benchmarks and statistics only.
//!
//! Figures come from the kernel (`clock_gettime`, `/proc/self`). Where `/proc` is missing the answer is zero or
//! `None`: nothing but reports depends on them. Tests stand below.

use std::time::Duration;

/// Processor time of all threads of this process so far.
#[must_use]
pub fn cpu_time() -> Duration {
    spent(rustix::time::ClockId::ProcessCPUTime)
}

/// Processor time of this thread so far.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    spent(rustix::time::ClockId::ThreadCPUTime)
}

fn spent(clock: rustix::time::ClockId) -> Duration {
    let spent = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Memory of this process that is resident now, bytes; 0 where the system does not say.
#[must_use]
pub fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// The most memory of this process that was resident at once, bytes; 0 where the system does not say.
#[must_use]
pub fn resident_bytes_max() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let field = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = field.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Bytes this process has made block devices read and write so far; `None` where the system does not say.
#[must_use]
pub fn device_bytes() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)).and_then(|rest| rest.trim().parse().ok())
    };
    Some((field("read_bytes:")?, field("write_bytes:")?))
}

/// Files, sockets and the like that this process has open now; `None` where the system does not say.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "what the kernel says of this process, no store's file")]
pub fn open_files() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    // One of them is the directory that is being read.
    Some((entries.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work_and_memory_is_not_zero() {
        let before = cpu_time();
        let mut hash = 0u64;
        while cpu_time() == before {
            hash = crate::hash64(&hash.to_le_bytes());
        }
        assert!(cpu_time() > before);
        assert!(resident_bytes() > 100_000);
        assert!(resident_bytes_max() > 100_000);
        assert!(open_files().is_none_or(|count| count >= 3));
    }
}
