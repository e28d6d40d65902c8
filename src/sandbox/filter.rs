//! The seccomp layer: system calls that no command needs.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::SandboxPolicy;

/// Calls that reach other processes, the kernel's keys, mounts, clocks, modules or new name spaces.
const REFUSED: [i64; 44] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
];

/// Flags of `clone` that make a name space.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Filters the calls of this process and all it starts.
pub(super) fn enter(policy: &SandboxPolicy) -> Result<(), String> {
    let problem = |error: &dyn std::fmt::Display| format!("seccomp refused: {error}");
    // `clone3` hides its flags in memory: refused as if it did not exist, so that libraries use `clone`.
    for (rules, errno) in [(refused(policy), libc::EPERM), (absent(), libc::ENOSYS)] {
        let rules = rules.map_err(|error| problem(&error))?;
        let program = compile(rules, errno).map_err(|error| problem(&error))?;
        seccompiler::apply_filter(&program).map_err(|error| problem(&error))?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, errno: libc::c_int) -> Result<BpfProgram, seccompiler::BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let action = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?.try_into()
}

fn absent() -> Result<Rules, seccompiler::BackendError> {
    Ok(Rules::from([(libc::SYS_clone3, Vec::new())]))
}

fn refused(policy: &SandboxPolicy) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    if !policy.network {
        // Also sockets of the local machine: the agent of ssh, the socket of Docker, the desktop's bus.
        rules.insert(libc::SYS_socket, Vec::new());
    }
    let has_flag = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        let condition =
            SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag).map(|c| vec![c])?;
        SeccompRule::new(condition)
    };
    let clone = NAMESPACE_FLAGS.into_iter().map(has_flag).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_clone, clone);
    // Typing into the terminal that the command was started from.
    let typing = |request: u64| {
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    rules.insert(libc::SYS_ioctl, vec![typing(libc::TIOCSTI)?, typing(libc::TIOCLINUX)?]);
    Ok(rules)
}
