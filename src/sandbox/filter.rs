//! The seccomp layer: system calls that no command needs.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::policy::SandboxPolicy;

/// Calls that reach other processes, the kernel's keys, mounts, clocks, modules or new name spaces.
const REFUSED: [i64; 45] = [
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
    libc::SYS_pidfd_open,
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
    rules.insert(libc::SYS_socket, if policy.network { other_families()? } else { Vec::new() });
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
    with_second_numbers(&mut rules);
    Ok(rules)
}

/// Families of sockets that are no network: raw packets, machines above this one, the kernel's own services. Without
/// the network every family is refused, also that of the local machine: the agent of ssh, the desktop's bus.
fn other_families() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let is_not = |family: libc::c_int| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))
    };
    let usual = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    Ok(vec![SeccompRule::new(usual.into_iter().map(is_not).collect::<Result<_, _>>()?)?])
}

/// On x86-64 a kernel may know each call by a second number, that of programs with short pointers, and some calls by
/// a third (`arch/x86/entry/syscalls/syscall_64.tbl`).
fn with_second_numbers(rules: &mut Rules) {
    const SHORT_POINTERS: i64 = 0x4000_0000;
    const THIRD: [(i64, i64); 4] = [
        (libc::SYS_ioctl, 514),
        (libc::SYS_ptrace, 521),
        (libc::SYS_process_vm_readv, 539),
        (libc::SYS_process_vm_writev, 540),
    ];
    if std::env::consts::ARCH != "x86_64" {
        return;
    }
    let third =
        THIRD.into_iter().filter_map(|(call, number)| Some((number | SHORT_POINTERS, rules.get(&call)?.clone())));
    let second = rules.iter().map(|(call, rule)| (call | SHORT_POINTERS, rule.clone()));
    let more: Vec<_> = third.chain(second).collect();
    rules.extend(more);
}
