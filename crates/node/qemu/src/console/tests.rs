use super::*;
use crate::tests::within;
use tokio::net::UnixListener;

struct Port {
    dir: RunDir,
    listener: UnixListener,
    tasks: Tasks,
    _folder: tempfile::TempDir,
}

fn port() -> Port {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(SERIAL)).unwrap();
    let dir = RunDir::new(folder.path());
    Port { dir, listener, tasks: Tasks::default(), _folder: folder }
}

async fn read_until(listener: &mut Listener, wanted: &str) {
    let mut output = String::new();
    within(wanted, async {
        while !output.contains(wanted) {
            output.push_str(&String::from_utf8_lossy(&listener.next().await.unwrap()));
        }
    })
    .await;
    assert_eq!(output, wanted);
}

#[tokio::test]
async fn all_listeners_get_all_output_and_late_ones_the_recent_part() {
    let port = port();
    let console = Console::open(port.dir.clone(), &port.tasks).await;
    let (mut guest, _) = port.listener.accept().await.unwrap();
    let mut early = console.listen().unwrap();
    guest.write_all(b"login: ").await.unwrap();
    read_until(&mut early, "login: ").await;
    let mut late = console.listen().unwrap();
    read_until(&mut late, "login: ").await;
    console.write("root\r").await.unwrap();
    let mut typed = [0; 5];
    guest.read_exact(&mut typed).await.unwrap();
    assert_eq!(&typed, b"root\r");
    guest.write_all(b"# ").await.unwrap();
    read_until(&mut early, "# ").await;
    read_until(&mut late, "# ").await;
    assert_eq!(log(&port.dir).await.unwrap(), b"login: # ");
}

#[tokio::test]
async fn a_slow_listener_is_dropped_and_the_guest_goes_on() {
    let port = port();
    let console = Console::open(port.dir.clone(), &port.tasks).await;
    let (mut guest, _) = port.listener.accept().await.unwrap();
    let mut asleep = console.listen().unwrap();
    let mut awake = console.listen().unwrap();
    let speak = async {
        for _ in 0..BEHIND * 4 {
            guest.write_all(&[b'x'; 4096]).await.unwrap();
        }
    };
    let listen = async {
        let mut received = 0;
        while received < BEHIND * 4 * 4096 {
            received += awake.next().await.unwrap().len();
        }
    };
    within("the flood", async { tokio::join!(speak, listen) }).await;
    assert!(matches!(asleep.next().await, Err(ConsoleError::TooSlow)));
    within("the log", async {
        while log(&port.dir).await.unwrap().len() < LONGEST_LOG as usize {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let kept = log(&port.dir).await.unwrap().len() as u64;
    assert!(kept <= 2 * LONGEST_LOG + 8192, "{kept} bytes are kept");
}

#[tokio::test]
async fn a_new_hub_remembers_what_the_old_one_wrote() {
    let port = port();
    let console = Console::open(port.dir.clone(), &port.tasks).await;
    let (mut guest, _) = port.listener.accept().await.unwrap();
    let mut listener = console.listen().unwrap();
    guest.write_all(b"before").await.unwrap();
    read_until(&mut listener, "before").await;
    drop((console, listener));
    let mut rest = Vec::new();
    within("the old hub's end", guest.read_to_end(&mut rest)).await.unwrap();
    let again = Console::open(port.dir.clone(), &port.tasks).await;
    read_until(&mut again.listen().unwrap(), "before").await;
}

#[tokio::test]
async fn a_console_ends_with_its_machine() {
    let Port { dir, listener, tasks, _folder } = port();
    let console = Console::open(dir, &tasks).await;
    let (guest, _) = listener.accept().await.unwrap();
    let mut ear = console.listen().unwrap();
    drop((guest, listener));
    let end = within("the end", ear.next()).await;
    assert!(matches!(end, Err(ConsoleError::Closed)), "{end:?}");
}
