//! A way to etcd that can be made to swallow answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// How often connections were cut: the generation of those that are made now.
    cuts: AtomicU64,
    /// Connections of a generation before this get no answers. They never do again, or an answer
    /// that is late could slip through while they are being cut.
    mute_before: AtomicU64,
    cut: Notify,
}

impl Proxy {
    /// Forwards to the server at `endpoint`.
    pub(crate) async fn start(endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                tokio::spawn(forward(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, state }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on requests arrive and answers do not.
    pub(crate) fn mute(&self) {
        self.state.mute_before.store(self.state.cuts.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    /// Breaks all connections; new ones work.
    pub(crate) fn cut(&self) {
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
        self.state.cut.notify_waiters();
    }
}

async fn forward(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let generation = state.cuts.load(Ordering::SeqCst);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            let mute = generation < state.mute_before.load(Ordering::SeqCst);
            if !mute && to_client.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = state.cut.notified() => {}
        _ = requests => {}
        () = answers => {}
    }
}
