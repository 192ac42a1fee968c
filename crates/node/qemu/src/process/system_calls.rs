//! The system calls that qemu-img may make while it reads images of strangers: those for files,
//! memory, threads and Unix sockets. It makes no process and no other socket, and changes no mount,
//! namespace, module, key or other process.
//!
//! Any other call fails as on a kernel that does not have it, so that libraries fall back to older
//! ones. `execve` is allowed, because qemu-img is executed under the filter: what it executes is
//! filtered, too. io_uring is missing because its operations are not filtered.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Numbers of the named calls.
macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

const ALLOWED: &[libc::c_long] = calls! {
    // Files.
    SYS_access SYS_close SYS_close_range SYS_copy_file_range SYS_dup SYS_dup2 SYS_dup3
    SYS_execve SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchmod SYS_fchmodat
    SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flock SYS_fstat SYS_fstatfs SYS_fsync
    SYS_ftruncate SYS_getcwd SYS_getdents64 SYS_getxattr SYS_ioctl SYS_lgetxattr SYS_lseek
    SYS_lstat SYS_newfstatat SYS_open SYS_openat SYS_openat2 SYS_pread64 SYS_preadv SYS_preadv2
    SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlink SYS_readlinkat
    SYS_readv SYS_sendfile SYS_splice SYS_stat SYS_statfs SYS_statx SYS_sync_file_range
    SYS_umask SYS_unlink SYS_unlinkat SYS_write SYS_writev
    // Memory.
    SYS_brk SYS_get_mempolicy SYS_madvise SYS_memfd_create SYS_mincore SYS_mlock SYS_mlock2
    SYS_mmap SYS_mprotect SYS_mremap SYS_msync SYS_munlock SYS_munmap SYS_set_mempolicy
    // Threads and signals of this process.
    SYS_arch_prctl SYS_exit SYS_exit_group SYS_futex SYS_getcpu SYS_gettid SYS_membarrier
    SYS_prctl SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_setaffinity
    SYS_sched_yield SYS_set_robust_list SYS_set_tid_address SYS_sigaltstack SYS_tgkill
    // Sockets of the storage process, and waiting.
    SYS_connect SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
    SYS_epoll_wait SYS_eventfd2 SYS_getpeername SYS_getsockname SYS_getsockopt SYS_pipe
    SYS_pipe2 SYS_poll SYS_ppoll SYS_pselect6 SYS_recvfrom SYS_recvmsg SYS_select SYS_sendmsg
    SYS_sendto SYS_setsockopt SYS_shutdown SYS_signalfd4 SYS_socketpair
    // Time and questions about this process.
    SYS_capget SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_getegid
    SYS_geteuid SYS_getgid SYS_getpgrp SYS_getpid SYS_getppid SYS_getrandom SYS_getresgid
    SYS_getresuid SYS_getrlimit SYS_getrusage SYS_gettimeofday SYS_getuid SYS_nanosleep
    SYS_prlimit64 SYS_sysinfo SYS_time SYS_timerfd_create SYS_timerfd_gettime
    SYS_timerfd_settime SYS_times SYS_uname
};

/// The filter of qemu-img.
pub(crate) fn converter() -> Result<BpfProgram, seccompiler::Error> {
    let condition = |argument, operation, value: u64| {
        let length = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(argument, length, operation, value)?;
        SeccompRule::new(vec![condition])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // A thread, and no process. The arguments of clone3 cannot be seen: it is missing.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    rules.insert(libc::SYS_clone, vec![condition(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    let unix = u64::from(libc::AF_UNIX.cast_unsigned());
    rules.insert(libc::SYS_socket, vec![condition(0, SeccompCmpOp::Eq, unix)?]);
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, missing, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_converter_has_threads_and_unix_sockets_and_makes_no_process() {
        let filtered = std::thread::spawn(|| {
            seccompiler::apply_filter(&converter().unwrap()).unwrap();
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            UnixDatagram::unbound().unwrap();
            let internet = std::net::UdpSocket::bind("127.0.0.1:0").map(drop);
            let program = Command::new("true").status().map(drop);
            let root = rustix::process::chroot("/");
            let mount = rustix::mount::unmount("/", rustix::mount::UnmountFlags::DETACH);
            (internet.unwrap_err(), program.unwrap_err(), [root, mount])
        });
        let (internet, program, others) = filtered.join().unwrap();
        assert_eq!(internet.kind(), ErrorKind::Unsupported, "{internet}");
        assert_eq!(program.kind(), ErrorKind::Unsupported, "{program}");
        assert_eq!(others, [Err(Errno::NOSYS); 2]);
    }
}
