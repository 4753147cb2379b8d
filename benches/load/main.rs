//! Loads one address with small GETs and prints what came of it, one `name value` a line.
//!
//! Closed loop: each connection asks again as soon as it is answered. Open loop (`--rate`): requests fall due at a constant
//! rate and go out on whichever connection has been idle for longest. One that finds none idle waits, and its latency
//! counts from when it was *due*, so a stall of the gateway shows in every request it held up, not only in those that
//! were on their way (no "coordinated omission").
//!
//! One thread, one epoll, requests made beforehand: the generator shares the machine with what it measures.
#![expect(clippy::disallowed_methods, reason = "a load generator must read the clock")]

mod connection;
mod echo;
mod processor_time;
mod slow;
mod summary;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::event::{Timespec, epoll};

use connection::{Connection, PART, Request};
use processor_time::ProcessorTime;
use summary::Summary;

/// How long the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
const EVENTS: usize = 256;

#[derive(Parser)]
#[command(args_override_self = true)]
struct Options {
    /// Where the gateway listens.
    address: SocketAddr,
    /// Connections, all kept alive unless `--close` is given.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Seconds of load before anything counts.
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Seconds of load that count.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Ends earlier, after this number of requests (those of the warm-up included).
    #[arg(long, default_value_t = u64::MAX)]
    requests: u64,
    /// Open loop: requests a second, constant.
    #[arg(long)]
    rate: Option<f64>,
    /// Sends `x-api-key` with a random value out of this number of values.
    #[arg(long)]
    keys: Option<NonZeroU64>,
    /// Sends `x-api-key`, a new one with each request, counted from here.
    #[arg(long, conflicts_with = "keys")]
    first_key: Option<u64>,
    /// Sends no requests: this number of clients send a byte of a head at intervals, until the end.
    #[arg(long)]
    slow: Option<u32>,
    /// A connection for each request, which asks the gateway to close it.
    #[arg(long)]
    close: bool,
    /// Messages over WebSocket connections instead of requests.
    #[arg(long, conflicts_with = "close")]
    websocket: bool,
    /// Loads nothing: it is the backend of WebSocket connections, listens at the address, and sends each byte back.
    #[arg(long)]
    echo: bool,
    /// The path to ask for.
    #[arg(long, default_value = "/")]
    path: String,
    /// A further header, `NAME: VALUE`; may be repeated.
    #[arg(long)]
    header: Vec<String>,
    /// A process whose CPU time, with that of its children, is divided by the requests that count.
    #[arg(long)]
    watch: Option<u32>,
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    // The default, 50 µs, would make every request of an open loop late by that.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    if options.echo {
        return echo::run(options.address);
    }
    if let Some(count) = options.slow {
        return slow::run(options.address, count, options.warmup + options.seconds);
    }
    let mut load = Load::start(&options)?;
    load.run()?;
    write!(io::stdout(), "{}", load.summary)
}

/// The state of a run.
struct Load<'a> {
    options: &'a Options,
    poll: rustix::fd::OwnedFd,
    /// An ended one is opened again for its next request.
    connections: Vec<Option<Connection>>,
    /// Which connections wait for a request, the one that has waited for longest in front.
    idle: VecDeque<usize>,
    request: Request,
    /// Bytes of a body, which are not kept.
    part: Vec<u8>,
    begin: Instant,
    /// From when a request counts.
    warm: Instant,
    /// From when none falls due.
    end: Instant,
    /// Requests sent so far.
    sent: u64,
    /// The watched process's time when the first request that counts was sent.
    before: Option<ProcessorTime>,
    summary: Summary,
}

impl<'a> Load<'a> {
    fn start(options: &'a Options) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections: Vec<Connection> =
            (0..options.connections).map(|_| Connection::open(options.address)).collect::<io::Result<_>>()?;
        if options.websocket {
            connections.iter_mut().try_for_each(Connection::upgrade)?;
        }
        let request = if options.websocket {
            Request::message()
        } else {
            Request::new(&options.path, &options.header, options.close, options.keys, options.first_key)
        };
        let begin = Instant::now();
        let warm = begin + Duration::from_secs_f64(options.warmup);
        let load = Self {
            options,
            poll,
            idle: (0..connections.len()).collect(),
            connections: connections.into_iter().map(Some).collect(),
            request,
            part: vec![0; PART],
            begin,
            warm,
            end: warm + Duration::from_secs_f64(options.seconds),
            sent: 0,
            before: None,
            summary: Summary::default(),
        };
        (0..load.connections.len()).try_for_each(|index| load.listen_to(index))?;
        Ok(load)
    }

    fn listen_to(&self, index: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(index as u64);
        let Some(connection) = &self.connections[index] else { return Ok(()) };
        Ok(epoll::add(&self.poll, connection.socket(), data, epoll::EventFlags::IN)?)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.send_what_is_due()?;
            let now = Instant::now();
            let next = self.next_due(now);
            let all_answered = self.idle.len() == self.connections.len();
            if next.is_none() && (all_answered || now > self.end + LAST_ANSWERS) {
                break;
            }
            // With no connection idle, what is due must wait for an answer anyway.
            let wake = if self.idle.is_empty() { None } else { next };
            let patience = wake.unwrap_or(now + LAST_ANSWERS).saturating_duration_since(now);
            let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
            events.clear();
            epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))?;
            for event in &events {
                self.receive(usize::try_from(event.data.u64()).map_err(io::Error::other)?)?;
            }
        }
        self.summary.unanswered = self.connections.len() - self.idle.len();
        self.summary.elapsed = self.warm.elapsed();
        if let (Some(process), Some(before)) = (self.options.watch, self.before) {
            self.summary.processor_time = Some(ProcessorTime::of(process)? - before);
        }
        Ok(())
    }

    /// When the next request falls due; `None`: there is none.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let due = match self.options.rate {
            // Whole numbers of requests stay far below 2^53.
            #[expect(clippy::cast_precision_loss, reason = "see above")]
            Some(rate) => self.begin + Duration::from_secs_f64(self.sent as f64 / rate),
            None => now,
        };
        (due < self.end && self.sent < self.options.requests).then_some(due)
    }

    fn send_what_is_due(&mut self) -> io::Result<()> {
        loop {
            let now = Instant::now();
            let Some(due) = self.next_due(now).filter(|due| *due <= now) else { return Ok(()) };
            let Some(index) = self.idle.pop_front() else { return Ok(()) };
            if due >= self.warm && self.before.is_none() {
                self.before = self.options.watch.map(ProcessorTime::of).transpose()?;
            }
            self.sent += 1;
            // The latency of a request includes the opening of its connection.
            if self.connections[index].is_none() {
                self.summary.reconnects += 1;
                self.connections[index] = Some(Connection::open(self.options.address)?);
                self.listen_to(index)?;
            }
            if let Some(connection) = &mut self.connections[index] {
                connection.send(self.request.next(), due)?;
            }
        }
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        let Some(answer) = connection.receive(&mut self.part)? else { return Ok(()) };
        if answer.due >= self.warm {
            self.summary.answered(answer.status, answer.due.elapsed());
        }
        self.idle.push_back(index);
        if answer.closes {
            self.connections[index] = None;
        }
        Ok(())
    }
}
