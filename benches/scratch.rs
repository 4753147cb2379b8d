use std::hint::black_box;
use std::time::Instant;
use tollgate::limit::units::*;
use tollgate::limit::*;
use tollgate::store::memory::MemoryStore;
use tollgate::store::*;
const NOON: Timestamp = Timestamp(1_599_998_400_000_000);
fn algos(count: u32, period: Micros) -> Vec<Algorithm> {
    let (rate, units) = (Rate::new(count, period).unwrap(), Cost::new(count).unwrap());
    vec![Algorithm::token_bucket(rate, units), Algorithm::gcra(rate, units), Algorithm::leaky_bucket(rate, units, Micros(86_400_000_000)),
      Algorithm::fixed_window(rate, Align::Clock), Algorithm::sliding_window(rate)]
}
#[inline(never)]
fn one(store: &MemoryStore, charge: &Charge<'_>, now: Timestamp) -> Verdict { store.decide_alone(charge, now).verdict }
#[inline(never)]
fn whole(store: &MemoryStore, charge: &Charge<'_>, now: Timestamp) -> Verdict { store.decide(std::slice::from_ref(charge), now).decisions[0].verdict }
fn time(mut f: impl FnMut(u64)) -> f64 {
    let n = 400_000u64; let mut best = f64::MAX;
    for r in 0..15 { let t = Instant::now(); for i in 0..n { f(r * n + i) } best = best.min(t.elapsed().as_nanos() as f64 / n as f64); }
    best
}
fn main() {
    for (open, closed) in algos(1_000, Micros(10_000)).iter().zip(&algos(10, Micros(86_400_000_000))) {
        let store = MemoryStore::new(1_100_000);
        let charge = |algorithm, key| Charge { algorithm, numbers: NumbersId::of(algorithm), key: Fingerprint(key), cost: Cost::ONE, group: Group::Enforced };
        let a = charge(open, 0x9e3779b97f4a7c15f39cc0605cedc835); let b = charge(closed, 0xda942042e4dd58b594d049bb133111eb);
        for _ in 0..11 { one(&store, &b, NOON); }
        let x = time(|i| { black_box(one(&store, black_box(&a), NOON.plus(Micros(i * 1000)))); });
        let xw = time(|i| { black_box(whole(&store, black_box(&a), NOON.plus(Micros(6_000_000_000 + i * 1000)))); });
        let y = time(|_| { black_box(one(&store, black_box(&b), NOON)); });
        let yw = time(|_| { black_box(whole(&store, black_box(&b), NOON)); });
        println!("{:15} admitted {x:5.1} ({xw:5.1} as Outcome) refused {y:5.1} ({yw:5.1})", open.name());
    }
}
