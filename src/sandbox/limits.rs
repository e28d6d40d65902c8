//! What a command may use up.

use rustix::process::{Resource, Rlimit, setrlimit};

use super::policy::{Limits, View};

/// The first kernel in which the highest process number belongs to the name space (Linux 6.14).
const OWN_PROCESS_NUMBERS: (u32, u32) = (6, 14);

/// Numbers that a name space of processes needs beside those of the commands.
const SPARE_NUMBERS: u64 = 300;

/// Limits this process and all it starts. A limit that is refused was lower before.
pub(super) fn enter(limits: Limits, view: View) {
    // A dump of memory is a file with everything in it.
    set(Resource::Core, 0);
    for (resource, most) in [(Resource::As, limits.memory_bytes), (Resource::Fsize, limits.file_bytes)] {
        if most > 0 {
            set(resource, most);
        }
    }
    if limits.processes == 0 {
        return;
    }
    // Without a name space of its own it would count everything the user runs.
    if view == View::Own {
        set(Resource::Nproc, limits.processes);
        limit_numbers(limits.processes);
    }
}

fn set(resource: Resource, most: u64) {
    let most = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).ok();
}

/// The other limit does not hold for root.
fn limit_numbers(processes: u64) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // On older kernels it would be the whole system's.
    if version(&release).is_some_and(|version| version >= OWN_PROCESS_NUMBERS) {
        std::fs::write("/proc/sys/kernel/pid_max", (processes + SPARE_NUMBERS).to_string()).ok();
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_numbers() {
        for (release, expected) in [
            ("6.18.44-fc-v769\n", Some((6, 18))),
            ("5.4.0", Some((5, 4))),
            ("6.9", Some((6, 9))),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(version("6.9.1") < Some(OWN_PROCESS_NUMBERS) && version("10.0") > Some(OWN_PROCESS_NUMBERS));
    }
}
