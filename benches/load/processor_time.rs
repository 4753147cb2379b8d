//! What a process and its children have used of the processors.

use std::fs;
use std::io;
use std::ops::Sub;
use std::path::Path;

/// Since the process began, over all of its threads and its children's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTime {
    /// On a processor, exact.
    nanoseconds: u64,
    /// In user space and in the kernel, in clock ticks: where the kernel's timer found it, so good only as a ratio.
    user_ticks: u64,
    system_ticks: u64,
}

impl ProcessorTime {
    /// Reads `/proc`. The kernel must keep `schedstat`, as those of all distributions do.
    pub(crate) fn of(process: u32) -> io::Result<Self> {
        let folder = Path::new("/proc").join(process.to_string());
        let mut sum = Self::default();
        let stat = fs::read_to_string(folder.join("stat"))?;
        // The name in parentheses may hold blanks: fields are counted behind it, where the state is field 3.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        sum.user_ticks = number(fields.get(14 - 3))?;
        sum.system_ticks = number(fields.get(15 - 3))?;
        for thread in fs::read_dir(folder.join("task"))? {
            let thread = thread?.path();
            let schedstat = fs::read_to_string(thread.join("schedstat"))?;
            sum.nanoseconds += number(schedstat.split_whitespace().next().as_ref())?;
            for child in fs::read_to_string(thread.join("children"))?.split_whitespace() {
                sum.add(Self::of(child.parse().map_err(io::Error::other)?)?);
            }
        }
        Ok(sum)
    }

    fn add(&mut self, other: Self) {
        self.nanoseconds += other.nanoseconds;
        self.user_ticks += other.user_ticks;
        self.system_ticks += other.system_ticks;
    }

    /// Microseconds in user space and in the kernel, a request.
    #[expect(clippy::cast_precision_loss, reason = "2^53 ns are months")]
    pub(crate) fn per_request(self, requests: usize) -> (f64, f64) {
        let microseconds = self.nanoseconds as f64 / 1e3 / requests as f64;
        let ticks = (self.user_ticks + self.system_ticks).max(1);
        let user = microseconds * self.user_ticks as f64 / ticks as f64;
        (user, microseconds - user)
    }
}

impl Sub for ProcessorTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            nanoseconds: self.nanoseconds.saturating_sub(before.nanoseconds),
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
        }
    }
}

fn number(field: Option<&&str>) -> io::Result<u64> {
    field.unwrap_or(&"").parse().map_err(io::Error::other)
}
