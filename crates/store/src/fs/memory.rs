//! How much memory this process may use.

use std::fs;
use std::path::{Path, PathBuf};

const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes that this process may use: the machine's memory, or less if its control group (a container) has a limit.
/// `None` if the system does not say.
pub(crate) fn limit() -> Option<u64> {
    machine().into_iter().chain(group()).min()
}

fn machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit from this process's group up to the root, in version 1 or 2 of the interface.
fn group() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let (base, file) = match controllers {
                "" => (PathBuf::from(GROUPS), "memory.max"),
                "memory" => (Path::new(GROUPS).join("memory"), "memory.limit_in_bytes"),
                _ => return None,
            };
            let own = base.join(path.trim_start_matches('/'));
            own.ancestors()
                .take_while(|directory| directory.starts_with(&base))
                .filter_map(|directory| number(&directory.join(file)))
                .min()
        })
        .min()
}

/// `max`, and a missing file, mean no limit.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_machine_says_how_much_memory_it_has() {
        let bytes = limit().unwrap();
        assert!((1 << 24..1 << 50).contains(&bytes), "{bytes}");
    }
}
