//! The order in which passwords are checked: those of one client one after the other, and no password twice at once.
//!
//! Clients are distributed over lanes. A lane checks one password at a time, so that its outcome is charged before the
//! next one of the same client is looked at, and the wrong passwords of one client wait for each other. Requests with a
//! password that is being checked wait for its result without a place in a lane.

use std::sync::Arc;

use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, watch};

use super::passwords::{PasswordCheck, WrongPassword};
use super::verification_pool::{QueueFull, VerificationPool};
use crate::route::identity::Identity;

/// The result of checking a password.
pub type PasswordResult = Result<Arc<Identity>, WrongPassword>;
/// The passwords that are being checked, by a keyed hash, with their results once they are there.
type RunningChecks = Arc<DashMap<u128, watch::Receiver<Option<PasswordResult>>, RandomState>>;

/// The lanes, and the passwords that are being checked.
#[derive(Debug)]
pub struct PasswordLanes {
    lanes: Box<[Lane]>,
    pool: VerificationPool,
    running: RunningChecks,
}

#[derive(Debug)]
struct Lane {
    turn: Arc<Turn<()>>,
    places: Arc<Semaphore>,
}

/// Whether a request checks its password itself.
#[derive(Debug)]
pub enum Flight {
    /// It does.
    Leader(FlightGuard),
    /// Another request with the same password had this result.
    Result(PasswordResult),
}

/// The duty to check a password. Requests with the same password wait until it is dropped.
#[derive(Debug)]
pub struct FlightGuard {
    hash: u128,
    result: watch::Sender<Option<PasswordResult>>,
    running: RunningChecks,
}

/// The right to check passwords of a lane. The next request of the lane waits until it is dropped.
#[derive(Debug)]
pub struct LaneTurn {
    _turn: OwnedMutexGuard<()>,
    _place: OwnedSemaphorePermit,
}

impl PasswordLanes {
    /// `count` lanes with a thread each; at most `waiting` different passwords wait in each.
    pub fn new(count: usize, waiting: usize) -> Self {
        let count = count.max(1);
        let places = || Arc::new(Semaphore::new(waiting.saturating_add(1)));
        let lane = || Lane { turn: Arc::default(), places: places() };
        Self {
            lanes: std::iter::repeat_with(lane).take(count).collect(),
            pool: VerificationPool::in_background(count, count),
            running: RunningChecks::default(),
        }
    }

    /// Waits for the result of another request with the same password, known by this `hash`, if there is one.
    pub async fn join(&self, hash: u128) -> Flight {
        loop {
            let mut result = match self.running_or_lead(hash) {
                Ok(result) => result,
                Err(guard) => return Flight::Leader(guard),
            };
            // Without a result, the other request has left.
            if let Ok(checked) = result.wait_for(Option::is_some).await
                && let Some(checked) = &*checked
            {
                return Flight::Result(checked.clone());
            }
        }
    }

    fn running_or_lead(&self, hash: u128) -> Result<watch::Receiver<Option<PasswordResult>>, FlightGuard> {
        match self.running.entry(hash) {
            Entry::Occupied(other) => Ok(other.get().clone()),
            Entry::Vacant(entry) => {
                let (sender, receiver) = watch::channel(None);
                entry.insert(receiver);
                Err(FlightGuard { hash, result: sender, running: Arc::clone(&self.running) })
            }
        }
    }

    /// Waits for the lane of the client with this number.
    ///
    /// # Errors
    ///
    /// Too many requests wait for it.
    pub async fn turn(&self, client: u64) -> Result<LaneTurn, QueueFull> {
        // The rest is less than the number of lanes.
        let lane = usize::try_from(client % self.lanes.len() as u64).unwrap_or_default();
        let lane = &self.lanes[lane];
        let place = Arc::clone(&lane.places).try_acquire_owned().map_err(|_| QueueFull)?;
        Ok(LaneTurn { _turn: Arc::clone(&lane.turn).lock_owned().await, _place: place })
    }

    /// Checks a password on a thread of its own.
    ///
    /// # Errors
    ///
    /// The system starts no thread.
    pub async fn check(
        &self,
        guard: &FlightGuard,
        check: PasswordCheck,
    ) -> Result<PasswordResult, QueueFull> {
        let checked = self.pool.run(move || check.run()).await?;
        guard.result.send_replace(Some(checked.clone()));
        Ok(checked)
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.running.remove(&self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_with_one_password_follow_the_first() {
        let lanes = Arc::new(PasswordLanes::new(1, 1));
        let Flight::Leader(guard) = lanes.join(1).await else { panic!("the first leads") };
        assert!(matches!(lanes.join(2).await, Flight::Leader(_)), "another password");
        let follower = tokio::spawn({
            let lanes = Arc::clone(&lanes);
            async move { lanes.join(1).await }
        });
        tokio::task::yield_now().await;
        guard.result.send_replace(Some(Err(WrongPassword)));
        drop(guard);
        assert!(matches!(follower.await.expect("no panic"), Flight::Result(Err(WrongPassword))));
        assert!(matches!(lanes.join(1).await, Flight::Leader(_)), "a wrong password is checked again");
    }

    #[tokio::test]
    async fn a_follower_leads_once_the_leader_has_left() {
        let lanes = Arc::new(PasswordLanes::new(1, 1));
        let Flight::Leader(guard) = lanes.join(1).await else { panic!("the first leads") };
        let follower = tokio::spawn({
            let lanes = Arc::clone(&lanes);
            async move { matches!(lanes.join(1).await, Flight::Leader(_)) }
        });
        tokio::task::yield_now().await;
        drop(guard);
        assert!(follower.await.expect("no panic"));
    }

    #[tokio::test]
    async fn a_lane_is_taken_in_turn_and_has_a_bounded_queue() {
        let lanes = Arc::new(PasswordLanes::new(2, 1));
        let first = lanes.turn(0).await.expect("a free lane");
        let waiting = tokio::spawn({
            let lanes = Arc::clone(&lanes);
            async move { lanes.turn(2).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(lanes.turn(4).await.err(), Some(QueueFull));
        assert!(lanes.turn(1).await.is_ok(), "the other lane is free");
        drop(first);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
    }
}
