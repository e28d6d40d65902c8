use std::path::Path;
use std::sync::atomic::AtomicU32;

use super::*;

/// A sleep no other test uses, so that its process can be told from all others.
fn unique_sleep() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("sleep 7{:05}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes whose command line ends with this text.
fn running(command: &str) -> Vec<u32> {
    let wanted: Vec<u8> = command.bytes().map(|byte| if byte == b' ' { 0 } else { byte }).chain([0]).collect();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(&wanted)))
        .collect()
}

/// Lets other tasks run until the condition holds; a test that would hang fails instead.
async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain");
        tokio::task::yield_now().await;
    }
}

fn line(command: &str) -> CommandLine {
    CommandLine {
        command: command.into(),
        cwd: std::env::temp_dir(),
        timeout: Duration::from_secs(60),
        secret_env: Arc::from([]),
        keep_bytes: 16 << 10,
        sandbox: None,
        spill: None,
        workspace: Arc::from([]),
        git: GitCare::AsConfigured,
    }
}

async fn run(command: &str) -> Finished {
    Processes::default().run(&line(command), &CancellationToken::new(), |_| {}).await.unwrap()
}

/// Starts a command that makes `ready` when it is set up, does `end` to it then, and waits until all is quiet.
async fn end_when_ready<F>(command: &str, ready: &Path, end: F)
where
    F: AsyncFnOnce(&CancellationToken),
{
    let processes = Processes::default();
    let cancel = CancellationToken::new();
    let line = line(command);
    {
        let mut work = std::pin::pin!(processes.run(&line, &cancel, |_| {}));
        tokio::select! {
            finished = &mut work => panic!("ended before it was ready: {finished:?}"),
            () = until(|| ready.exists()) => {}
        }
        end(&cancel).await;
        if cancel.is_cancelled() {
            assert_eq!(work.await.unwrap().ended, Ended::Cancelled);
        }
    }
    processes.settled().await;
}

#[tokio::test]
async fn output_of_both_streams_comes_in_order() {
    let finished = run("echo one; echo two >&2; echo three; exit 3").await;
    assert_eq!(finished.output.text(), "one\ntwo\nthree\n");
    assert_eq!(finished.ended, Ended::Exited(3));
    assert_eq!(run("kill -9 $$").await.ended, Ended::Signalled(9));
    assert_eq!(run("true").await.output.text(), "");
}

#[tokio::test]
async fn binary_output_becomes_valid_text() {
    let finished = run(r"printf '\xff\x00\033[31mred\033[0m'").await;
    assert_eq!(finished.output.text(), "\u{fffd}red");
}

#[tokio::test]
async fn there_is_nothing_to_read_from() {
    assert_eq!(run("read x; echo \"$?\"; cat").await.output.text(), "1\n");
}

#[tokio::test]
async fn a_background_child_holds_nothing_up_and_is_gone_after_the_call() {
    let sleep = unique_sleep();
    let processes = Processes::default();
    let command = format!("{sleep} & setsid {sleep} & (setsid nohup {sleep} >/dev/null 2>&1 &) ; echo hi");
    let finished = processes.run(&line(&command), &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((finished.output.text(), finished.ended), ("hi\n".into(), Ended::Exited(0)));
    processes.settled().await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn a_command_out_of_time_dies_with_everything_it_started() {
    let sleep = unique_sleep();
    let processes = Processes::default();
    let command = format!("echo begun; (trap '' TERM; {sleep}; {sleep}) | {sleep} | cat & setsid {sleep} & {sleep}");
    let line = CommandLine { timeout: Duration::from_secs(1), ..line(&command) };
    let finished = processes.run(&line, &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((finished.output.text(), finished.ended), ("begun\n".into(), Ended::TimedOut));
    processes.settled().await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn what_a_command_says_while_it_is_ended_is_kept() {
    let line = CommandLine {
        timeout: Duration::from_secs(1),
        ..line("trap 'echo tidy; exit 0' TERM; echo begun; while :; do :; done")
    };
    let finished = Processes::default().run(&line, &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((finished.output.text(), finished.ended), ("begun\ntidy\n".into(), Ended::TimedOut));
}

#[tokio::test]
async fn a_cancelled_call_answers_before_its_stubborn_processes_are_dead() {
    let folder = tempfile::tempdir().unwrap();
    let (sleep, ready) = (unique_sleep(), folder.path().join("ready"));
    let command = format!(
        "trap '' TERM; {sleep} & setsid {sleep} & (setsid {sleep} &); touch {}; while :; do {sleep}; done",
        ready.display()
    );
    let processes = Processes::default();
    let cancel = CancellationToken::new();
    let line = line(&command);
    let mut work = std::pin::pin!(processes.run(&line, &cancel, |_| {}));
    tokio::select! {
        _ = &mut work => panic!("ended before it was ready"),
        () = until(|| ready.exists() && running(&sleep).len() >= 4) => {}
    }
    cancel.cancel();
    assert_eq!(work.await.unwrap().ended, Ended::Cancelled);
    assert!(!running(&sleep).is_empty(), "the answer came before the kill was through");
    processes.settled().await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn dropping_the_future_kills_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let (sleep, ready) = (unique_sleep(), folder.path().join("ready"));
    let command = format!("{sleep} & touch {}; {sleep}", ready.display());
    end_when_ready(&command, &ready, async |_| {}).await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn a_process_that_left_the_group_dies_with_a_cancelled_call() {
    let folder = tempfile::tempdir().unwrap();
    let (sleep, ready) = (unique_sleep(), folder.path().join("ready"));
    let command = format!("(setsid sh -c '(setsid {sleep} &) ; touch {}' &) ; {sleep}", ready.display());
    end_when_ready(&command, &ready, async |cancel| cancel.cancel()).await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[test]
fn the_end_of_the_runtime_kills_what_still_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (sleep, ready) = (unique_sleep(), folder.path().join("ready"));
    let command = format!("touch {}; {sleep}", ready.display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let line = line(&command);
        let (processes, cancel) = (Processes::default(), CancellationToken::new());
        let mut work = std::pin::pin!(processes.run(&line, &cancel, |_| {}));
        tokio::select! {
            _ = &mut work => panic!("ended before it was ready"),
            () = until(|| !running(&sleep).is_empty()) => {}
        }
    });
    drop(runtime);
    tokio::runtime::Runtime::new().unwrap().block_on(until(|| running(&sleep).is_empty()));
}

#[tokio::test]
async fn at_shutdown_nothing_gets_a_grace() {
    let folder = tempfile::tempdir().unwrap();
    let (sleep, ready) = (unique_sleep(), folder.path().join("ready"));
    let processes = Processes::default();
    let line = line(&format!("trap '' TERM; touch {}; {sleep}; {sleep}", ready.display()));
    let cancel = CancellationToken::new();
    let work = processes.run(&line, &cancel, |_| {});
    let end = async {
        until(|| !running(&sleep).is_empty()).await;
        processes.shut_down().await;
    };
    let (finished, ()) = tokio::join!(work, end);
    assert_eq!(finished.unwrap().ended, Ended::Cancelled);
    processes.settled().await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn output_of_any_length_is_kept_in_flat_memory() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    run("head -c 1000000 /dev/zero").await;
    let before = resident();
    let finished = run("echo head; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo tail").await;
    assert_eq!(finished.output.total_bytes(), 200_000_011);
    let text = finished.output.text();
    assert!(text.starts_with("head\nxxx") && text.ends_with("xxx\ntail\n"), "{}", text.len());
    assert!(text.len() < 33_000, "{}", text.len());
    assert!(resident() < before + 16 * 1024, "{} kB more", resident() - before);
}

#[tokio::test]
async fn output_is_shown_while_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let line = line(&format!("echo first; while [ ! -e {0} ]; do sleep 0.01; done; echo last", go.display()));
    let mut shown = Vec::new();
    let cancel = CancellationToken::new();
    let show = |output: &Capture| {
        shown.push(output.newest(100));
        std::fs::write(&go, "").unwrap();
    };
    let finished = Processes::default().run(&line, &cancel, show).await.unwrap();
    assert_eq!(shown.first().map(String::as_str), Some("first\n"));
    assert_eq!(finished.output.text(), "first\nlast\n");
}

#[tokio::test]
async fn a_command_sees_no_secret() {
    let secret_env: Arc<[String]> = Arc::from(["PATH_OF_SECRET".to_owned()]);
    let line = CommandLine { secret_env, ..line("env") };
    let finished = Processes::default().run(&line, &CancellationToken::new(), |_| {}).await.unwrap();
    let text = finished.output.text();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert!(names.contains(&"PATH") && names.contains(&"TURND_CALL_ID"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("TOKEN") || name.contains("API_KEY")), "{names:?}");
    assert!(text.contains("PAGER=cat\n") && text.contains("TERM=dumb\n"));
}

#[tokio::test]
async fn a_folder_that_is_gone_is_an_error() {
    let line = CommandLine { cwd: "/nowhere/at/all".into(), ..line("true") };
    assert!(Processes::default().run(&line, &CancellationToken::new(), |_| {}).await.is_err());
}

#[tokio::test]
async fn a_killed_daemon_takes_its_processes_with_it() {
    let sleep = unique_sleep();
    let (daemon_lives, daemon) = std::io::pipe().unwrap();
    let name = uuid::Uuid::now_v7().to_string();
    #[expect(clippy::disallowed_methods, reason = "stands for a command of a daemon that is killed")]
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("setsid {sleep} & {sleep}")]);
    environment::clean(&mut command, &[], &Marker::call(&name, 7));
    let mut child = command.spawn().unwrap();
    until(|| running(&sleep).len() >= 2).await;
    let watcher = std::thread::spawn(move || helper::watch(Some(name.into()), daemon_lives));
    drop(daemon);
    watcher.join().unwrap();
    assert_eq!(running(&sleep), Vec::<u32>::new());
    child.wait().unwrap();
}

#[tokio::test]
async fn background_commands_end_with_their_session() {
    let sleep = unique_sleep();
    let processes = Processes::default();
    let background = Background::new(processes.clone());
    background.start(line(&sleep)).unwrap();
    until(|| !running(&sleep).is_empty()).await;
    processes.settled().await;
    assert!(!running(&sleep).is_empty(), "it outlives the turn");
    drop(background);
    processes.0.background.close();
    processes.0.background.wait().await;
    processes.settled().await;
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn only_so_many_commands_run_in_the_background() {
    let processes = Processes::default();
    let background = Background::new(processes.clone());
    for _ in 0..16 {
        background.start(line("sleep 60")).unwrap();
    }
    assert!(background.start(line("true")).unwrap_err().to_string().contains("kill one"));
    background.kill(3).await.unwrap();
    assert_eq!(background.start(line("true")).unwrap(), 17);
    assert!(background.read(3).is_none(), "the ended one made room");
    processes.shut_down().await;
}
