//! The system calls that the storage process may make: those for files, memory, threads, sockets
//! and time. It executes no program, makes no process, and changes no mount, namespace, clock,
//! module or other process.
//!
//! Any other call fails as on a kernel that does not have it, so that a C library that tries a newer
//! one falls back to an older one. To be called before any other thread exists.

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
    SYS_access SYS_chmod SYS_chown SYS_close SYS_close_range SYS_copy_file_range SYS_dup
    SYS_dup2 SYS_dup3 SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchmod
    SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync
    SYS_fgetxattr SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync
    SYS_ftruncate SYS_getcwd SYS_getdents64 SYS_getxattr SYS_ioctl SYS_lgetxattr SYS_link
    SYS_linkat SYS_lseek SYS_lstat SYS_mkdir SYS_mkdirat SYS_newfstatat SYS_open
    SYS_openat SYS_openat2 SYS_pread64 SYS_preadv SYS_preadv2 SYS_pwrite64 SYS_pwritev
    SYS_pwritev2 SYS_read SYS_readahead SYS_readlink SYS_readlinkat SYS_readv
    SYS_removexattr SYS_rename SYS_renameat SYS_renameat2 SYS_rmdir SYS_sendfile
    SYS_setxattr SYS_splice SYS_stat SYS_statfs SYS_statx SYS_sync_file_range SYS_syncfs
    SYS_truncate SYS_umask SYS_unlink SYS_unlinkat SYS_utimensat SYS_write SYS_writev
    SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup
    // Memory.
    SYS_brk SYS_madvise SYS_memfd_create SYS_mincore SYS_mlock SYS_mlock2 SYS_mmap
    SYS_mprotect SYS_mremap SYS_msync SYS_munlock SYS_munmap
    // Threads and signals of this process.
    SYS_arch_prctl SYS_exit SYS_exit_group SYS_futex SYS_getcpu SYS_gettid SYS_membarrier
    SYS_prctl SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending
    SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity SYS_sched_getparam
    SYS_sched_getscheduler SYS_sched_setaffinity SYS_sched_yield SYS_set_robust_list
    SYS_set_tid_address SYS_sigaltstack SYS_tgkill
    // Sockets and waiting.
    SYS_accept SYS_accept4 SYS_bind SYS_connect SYS_epoll_create1 SYS_epoll_ctl
    SYS_epoll_pwait SYS_epoll_pwait2 SYS_epoll_wait SYS_eventfd2 SYS_getpeername
    SYS_getsockname SYS_getsockopt SYS_listen SYS_pipe SYS_pipe2 SYS_poll SYS_ppoll
    SYS_pselect6 SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_select SYS_sendmmsg SYS_sendmsg
    SYS_sendto SYS_setsockopt SYS_shutdown SYS_signalfd4 SYS_socketpair
    // Time and questions about this process.
    SYS_capget SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_getegid
    SYS_geteuid SYS_getgid SYS_getpid SYS_getppid SYS_getrandom SYS_getresgid
    SYS_getresuid SYS_getrlimit SYS_getrusage SYS_gettimeofday SYS_getuid SYS_nanosleep
    SYS_prlimit64 SYS_setrlimit SYS_sysinfo SYS_timerfd_create SYS_timerfd_gettime
    SYS_timerfd_settime SYS_times SYS_uname
};

const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Refuses all other calls from now on.
pub(super) fn filter() -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter(&program()?)
}

fn program() -> Result<BpfProgram, seccompiler::Error> {
    let condition = |argument, operation, value: u64| {
        let length = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(argument, length, operation, value)?;
        SeccompRule::new(vec![condition])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // A thread, and no process. The arguments of clone3 cannot be seen: it is missing.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    let threads = condition(0, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.insert(libc::SYS_clone, vec![threads]);
    let families = FAMILIES
        .into_iter()
        .map(|family| condition(0, SeccompCmpOp::Eq, u64::from(family.cast_unsigned())));
    rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, missing, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_filtered_thread_works_with_files_and_starts_no_program() {
        let done = std::thread::spawn(|| {
            filter().unwrap();
            let dir = std::env::temp_dir().join(format!("sheaf-filter-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("file"), "text").unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
            std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let child = std::thread::Builder::new().spawn(|| 7).unwrap();
            assert_eq!(child.join().unwrap(), 7);
            let started = Command::new("true").status().map(drop);
            let moved = rustix::process::chroot("/");
            (started, moved)
        });
        let (started, moved) = done.join().unwrap();
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(moved, Err(rustix::io::Errno::NOSYS));
    }
}
