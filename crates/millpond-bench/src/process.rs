//! The CPU time of this process and of its children.
//!
//! Owns the reading of `/proc`. Must never count a process that has ended.

use anyhow::{Context as _, Result};

/// A process that is watched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// CPU time so far in seconds, user and system, all threads; in steps of a clock tick (10 ms).
    pub(crate) fn cpu_seconds(self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))
            .with_context(|| format!("process {} has ended", self.0))?;
        let ticks = ticks(&stat).context("/proc/<pid>/stat has an unknown form")?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Memory that is resident now.
    pub(crate) fn memory_bytes(self) -> Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.0))
            .with_context(|| format!("process {} has ended", self.0))?;
        let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        Ok(pages.context("/proc/<pid>/statm has an unknown form")? * rustix::param::page_size() as u64)
    }
}

/// CPU time so far in seconds of this thread alone, to the nanosecond.
pub(crate) fn thread_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl Process {
    /// Bytes of memory that are resident now.
    pub(crate) fn resident_bytes(self) -> Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.0))
            .with_context(|| format!("process {} has ended", self.0))?;
        let pages = statm.split_ascii_whitespace().nth(1).context("/proc/<pid>/statm has an unknown form")?;
        Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
    }
}

/// CPU time so far in seconds of the whole machine, all cores, whoever used it.
pub(crate) fn machine_cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat").context("the CPU time of the machine is unknown")?;
    let ticks = busy_ticks(&stat).context("/proc/stat has an unknown form")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Everything in the first line but idle time (field 4) and waiting for the disk (field 5).
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let fields: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    Some(fields.get(..3)?.iter().sum::<u64>() + fields.get(5..8)?.iter().sum::<u64>())
}

/// Fields 14 and 15; the name in field 2 may hold spaces and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::{busy_ticks, ticks};

    #[test]
    fn ticks_are_found_behind_an_odd_name() {
        assert_eq!(ticks("7 (a) b) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20"), Some(42));
    }

    #[test]
    fn idle_time_is_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 3 1000 1000 4 5 6 0 0\ncpu0 1 1"), Some(21));
    }
}
