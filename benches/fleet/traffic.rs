//! Requests at random moments: of which key, and to which gateway.

use tollgate::limit::units::{Micros, Timestamp};

use crate::scenario::{Routing, Scenario, Traffic};

/// When all runs begin: at the edge of each window that they have.
pub(crate) const START: Timestamp = Timestamp(1_599_998_400_000_000);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) at: Timestamp,
    pub(crate) key: u32,
    pub(crate) gateway: u32,
}

/// An endless sequence of requests, which is the same for all runs with the same traffic.
pub(crate) struct Requests {
    traffic: Traffic,
    gateways: u64,
    random: fastrand::Rng,
    zipf: Zipf,
    /// µs since the start, with fractions.
    at: f64,
}

impl Requests {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            traffic: scenario.traffic,
            gateways: scenario.gateways as u64,
            random: fastrand::Rng::with_seed(7),
            zipf: Zipf::new(scenario.traffic.keys),
            at: 0.0,
        }
    }

    pub(crate) fn next(&mut self) -> Request {
        self.at -= self.random.f64().max(f64::MIN_POSITIVE).ln() * 1e6 / self.traffic.demand;
        let key = if self.traffic.keys == 1 { 1 } else { self.zipf.sample(&mut self.random) };
        let passed = self.at as u64;
        let gateway = self.gateway(key, passed);
        Request { at: START.plus(Micros(passed)), key: key as u32, gateway: gateway as u32 }
    }

    fn gateway(&mut self, key: u64, passed: u64) -> u64 {
        match self.traffic.routing {
            Routing::Even => self.random.u64(0..self.gateways),
            Routing::Skewed(share, period) => {
                let busy = (self.gateways / 10).max(1);
                let turn = passed / period.0;
                let choice = if self.random.f64() < (share - 0.1) / 0.9 { busy } else { self.gateways };
                (turn * busy + self.random.u64(0..choice)) % self.gateways
            }
            Routing::Sticky(period) => {
                // Keys do not all move at the same moment.
                let phase = mixed(key) % period.0;
                mixed(key ^ ((passed + phase) / period.0) << 32) % self.gateways
            }
        }
    }
}

/// Spreads a number.
fn mixed(number: u64) -> u64 {
    let product = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (product >> 64) as u64 ^ product as u64
}

/// The Zipf distribution with the exponent 1, by rejection (Hörmann and Derflinger, 1996).
struct Zipf {
    low: f64,
    high: f64,
    accept: f64,
    keys: u64,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        Self {
            low: 1.5_f64.ln() - 1.0,
            high: (keys as f64 + 0.5).ln(),
            accept: 2.0 - (2.5_f64.ln() - 0.5).exp(),
            keys,
        }
    }

    /// 1 to the number of keys.
    fn sample(&self, random: &mut fastrand::Rng) -> u64 {
        loop {
            let area = self.high + random.f64() * (self.low - self.high);
            let place = area.exp();
            let key = place.round().clamp(1.0, self.keys as f64);
            if key - place <= self.accept || area >= (key + 0.5).ln() - 1.0 / key {
                return key as u64;
            }
        }
    }
}
