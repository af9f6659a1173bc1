//! The server.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::connections::{self, Connection, Connections};
use crate::report::Ready;
use crate::wire::{self, IO_TIMEOUT, Mode, Token};
use crate::{lanes, rdma, tcp_info};

/// Pause after a failed accept, which mostly means too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than any direction of a test.
const LONGEST: Duration = Duration::from_secs(600);

/// Starts a server in its own process group, so that it outlives the login that started it, and prints its first line.
///
/// # Errors
/// It did not start.
pub fn start(deadline: Duration, port: u16) -> Result<(), String> {
    // Not by its path: the embedded program has none (see `embedded`).
    let mut child = Command::new("/proc/self/exe")
        // The original name shows the program's folder.
        .arg0(std::env::args_os().next().unwrap_or_default())
        .arg("listen")
        .args([
            "--deadline-s",
            &deadline.as_secs().to_string(),
            "--port",
            &port.to_string(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("the server cannot be started: {e}"))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let read = BufReader::new(out.take(1 << 20)).read_line(&mut line);
        read.map_err(|e| format!("the server printed nothing: {e}"))?;
    }
    if line.is_empty() {
        let status = child.wait().map_err(|e| e.to_string())?;
        return Err(format!(
            "the server ended at once: {status}; check that RACKWRIGHT_TRAFFIC_TOKEN is set and that the port is free"
        ));
    }
    print!("{line}");
    Ok(())
}

fn bind(port: u16) -> io::Result<TcpListener> {
    let both = || {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_only_v6(false)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
        socket.listen(256)?;
        Ok::<_, io::Error>(TcpListener::from(socket))
    };
    // A system without IPv6 listens on IPv4.
    both().or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// Serves until the deadline, or until the test shows no sign for a while; then this process ends and removes its folder.
///
/// # Errors
/// There is no token, or the port cannot be bound.
pub fn listen(deadline: Duration, port: u16) -> Result<(), String> {
    let token = wire::token()?;
    let listener = bind(port).map_err(|e| format!("cannot listen on port {port}: {e}"))?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let ready = Ready {
        port,
        pid: std::process::id(),
        lanes: lanes::found(),
    };
    let (connections, folder) = (Connections::new(), connections::own_folder());
    let until = Arc::clone(&connections);
    let watch = move || {
        connections::wait_for_end(&until, folder.as_deref(), deadline, connections::IDLE);
        if let Some(folder) = folder {
            let _ = std::fs::remove_dir_all(folder);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the main thread waits for connections, and nothing else is to end"
        )]
        std::process::exit(0);
    };
    let watching = std::thread::Builder::new().spawn(watch);
    watching
        .map_err(|e| format!("the server is not started, because the thread that ends it cannot be started: {e}"))?;
    let line = serde_json::to_string(&ready).map_err(|e| e.to_string())?;
    println!("{line}");
    io::stdout().flush().map_err(|e| e.to_string())?;
    serve(&listener, token, &connections);
    Ok(())
}

/// Serves every connection in its own thread.
#[expect(
    clippy::disallowed_methods,
    reason = "the main thread only accepts connections, and this program has no async code"
)]
pub fn serve(listener: &TcpListener, token: Token, connections: &Arc<Connections>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // An immediate retry would fail again.
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(mut connection) = connections.admit() else {
            continue;
        };
        // A client that breaks off, or gets no thread, reports that itself.
        let answering = move || answer(stream, &token, &mut connection);
        if std::thread::Builder::new().spawn(answering).is_err() {
            std::thread::sleep(PAUSE);
        }
    }
}

fn answer(mut stream: TcpStream, token: &Token, connection: &mut Connection) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let (mode, duration) = wire::accept_request(&mut stream, token, IO_TIMEOUT)?;
    connection.authenticate();
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    match mode {
        Mode::Ping => {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                stream.write_all(&byte)?;
            }
        }
        Mode::Sink => {
            let (taken, _) = wire::drain(&mut stream)?;
            let nanos = u64::try_from(taken.took.as_nanos()).unwrap_or(u64::MAX);
            stream.write_all(&taken.bytes.to_be_bytes())?;
            stream.write_all(&nanos.to_be_bytes())?;
        }
        Mode::Source => {
            wire::send(&mut stream, duration.min(LONGEST))?;
            let retransmits = tcp_info::retransmits(&stream).unwrap_or_default();
            stream.write_all(&wire::END)?;
            stream.write_all(&retransmits.to_be_bytes())?;
        }
        // A failure there is reported to the client over the connection.
        Mode::Rdma => return rdma::answer(stream, duration.min(LONGEST)).or(Ok(())),
    }
    stream.shutdown(Shutdown::Write)
}
