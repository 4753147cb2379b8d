//! Clients that send a head a byte at a time and never finish it. One that is cut comes back.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long each leaves between two bytes.
const PAUSE: Duration = Duration::from_secs(5);
/// What each begins with; then come letters of a field's value.
const BEGINNING: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ";

/// Keeps this number of connections for `seconds`; reports when all are open.
pub(crate) fn run(address: SocketAddr, count: u32, seconds: f64) -> io::Result<()> {
    let mut clients: Vec<TcpStream> = (0..count).map(|_| begin(address)).collect::<io::Result<_>>()?;
    writeln!(io::stdout(), "slow {count}")?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut due = Instant::now();
    while due < end {
        for client in &mut clients {
            due += PAUSE / count;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if !goes_on(client) {
                *client = begin(address)?;
            }
        }
    }
    Ok(())
}

fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(BEGINNING)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Sends another byte, unless the gateway has answered or closed.
fn goes_on(client: &mut TcpStream) -> bool {
    let silent = matches!(client.read(&mut [0; 16]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    silent && client.write_all(b"x").is_ok()
}
