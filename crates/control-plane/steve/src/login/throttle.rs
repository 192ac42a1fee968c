//! Limits the rate of failed logins.
//!
//! Failures are counted by address and user together: an attacker who guesses a password is slowed
//! down, while the user can still log in from elsewhere. The addresses of an IPv6 network of 64 bits
//! are one: its hosts choose theirs freely. The clock is an argument.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Failures before the first wait.
const FREE: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Failures are forgotten after this long without another.
const MEMORY: Duration = Duration::from_secs(15 * 60);
/// Attempts at once from one address; hashing takes memory and time.
const AT_ONCE: usize = 8;
/// Pairs that are remembered at most.
const MOST: usize = 10_000;

type Key = (Option<IpAddr>, String);

/// One attempt. It ends when it is dropped, also if its sender did not wait for the answer.
#[derive(Debug)]
pub(crate) struct Attempt {
    throttle: Arc<Mutex<LoginThrottle>>,
    source: Option<IpAddr>,
    username: String,
    pub(crate) success: bool,
}

impl Attempt {
    /// Begins an attempt, or says how long to wait before the next.
    pub(crate) fn begin(
        throttle: &Arc<Mutex<LoginThrottle>>,
        source: Option<IpAddr>,
        username: &str,
        now: Instant,
    ) -> Result<Self, Duration> {
        let source = source.map(network_of);
        throttle.lock().begin(source, username, now)?;
        let (throttle, username) = (throttle.clone(), username.to_owned());
        Ok(Self { throttle, source, username, success: false })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut throttle = self.throttle.lock();
        throttle.end(self.source, &self.username, self.success, Instant::now());
    }
}

/// The failures that are remembered, and the attempts under way.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    failures: HashMap<Key, (u32, Instant)>,
    under_way: HashMap<Option<IpAddr>, usize>,
}

impl LoginThrottle {
    fn begin(
        &mut self,
        source: Option<IpAddr>,
        username: &str,
        now: Instant,
    ) -> Result<(), Duration> {
        if let Some((count, last)) = self.failures.get(&(source, username.to_owned())) {
            let until = *last + wait(*count);
            if until > now {
                return Err(until - now);
            }
        }
        let under_way = self.under_way.entry(source).or_default();
        if *under_way >= AT_ONCE {
            return Err(Duration::from_secs(1));
        }
        *under_way += 1;
        Ok(())
    }

    /// Ends an attempt that [`Self::begin`] allowed.
    fn end(&mut self, source: Option<IpAddr>, username: &str, success: bool, now: Instant) {
        if let Some(under_way) = self.under_way.get_mut(&source) {
            *under_way = under_way.saturating_sub(1);
            if *under_way == 0 {
                self.under_way.remove(&source);
            }
        }
        let key = (source, username.to_owned());
        if success {
            self.failures.remove(&key);
            return;
        }
        if self.failures.len() >= MOST {
            self.failures.retain(|_, (_, last)| now.duration_since(*last) < MEMORY);
        }
        if self.failures.len() >= MOST && !self.failures.contains_key(&key) {
            // Users who are tried once must not push out those whose password is guessed.
            let least = self.failures.iter().min_by_key(|(_, (count, last))| (*count, *last));
            let least = least.map(|(key, _)| key.clone());
            least.and_then(|key| self.failures.remove(&key));
        }
        let (count, last) = self.failures.entry(key).or_insert((0, now));
        let forgotten = now.duration_since(*last) >= MEMORY;
        *count = if forgotten { 1 } else { count.saturating_add(1) };
        *last = now;
    }
}

/// The address, or the network of 64 bits of an IPv6 address.
fn network_of(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

fn wait(failures: u32) -> Duration {
    match failures.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(over) => Duration::from_secs(1 << over.min(6)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(throttle: &mut LoginThrottle, source: IpAddr, user: &str, times: u32, now: Instant) {
        for _ in 0..times {
            throttle.end(Some(source), user, false, now);
        }
    }

    #[test]
    fn only_clients_that_guess_passwords_wait() {
        let (here, there): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let now = Instant::now();
        let mut throttle = LoginThrottle::default();
        fail(&mut throttle, here, "admin", FREE - 1, now);
        assert_eq!(throttle.begin(Some(here), "admin", now), Ok(()));
        throttle.end(Some(here), "admin", false, now);
        assert_eq!(throttle.begin(Some(here), "admin", now), Err(Duration::from_secs(1)));
        assert_eq!(throttle.begin(Some(there), "admin", now), Ok(()));
        assert_eq!(throttle.begin(Some(here), "jane", now), Ok(()));
        let later = now + Duration::from_secs(1);
        assert_eq!(throttle.begin(Some(here), "admin", later), Ok(()));
        fail(&mut throttle, here, "admin", 100, later);
        assert_eq!(throttle.begin(Some(here), "admin", later), Err(LONGEST_WAIT));
        let success = later + LONGEST_WAIT;
        throttle.end(Some(here), "admin", true, success);
        assert_eq!(throttle.begin(Some(here), "admin", success), Ok(()));
    }

    #[test]
    fn another_address_of_the_same_network_is_no_other_client() {
        let throttle = Arc::new(Mutex::new(LoginThrottle::default()));
        let begin = |source: &str| {
            let source = source.parse().ok();
            Attempt::begin(&throttle, source, "admin", Instant::now()).is_ok()
        };
        for host in 1..=FREE {
            assert!(begin(&format!("2001:db8::{host}")), "{host}");
        }
        for (source, may) in [
            ("2001:db8::ffff", false),
            ("2001:db8:0:0:1:2:3:4", false),
            ("2001:db8:0:1::1", true),
            ("10.0.0.1", true),
        ] {
            assert_eq!(begin(source), may, "{source}");
        }
        assert_eq!(network_of("::ffff:10.0.0.1".parse().unwrap()), IpAddr::from([10, 0, 0, 1]));
    }

    #[test]
    fn one_address_has_few_attempts_at_once() {
        let here: IpAddr = [10, 0, 0, 1].into();
        let now = Instant::now();
        let mut throttle = LoginThrottle::default();
        for number in 0..AT_ONCE {
            assert_eq!(throttle.begin(Some(here), &format!("u{number}"), now), Ok(()));
        }
        assert!(throttle.begin(Some(here), "another", now).is_err());
        assert_eq!(throttle.begin(None, "another", now), Ok(()));
        throttle.end(Some(here), "u0", true, now);
        assert_eq!(throttle.begin(Some(here), "another", now), Ok(()));
    }

    #[test]
    fn the_number_of_remembered_clients_is_bounded() {
        let here: IpAddr = [10, 0, 0, 1].into();
        let now = Instant::now();
        let mut throttle = LoginThrottle::default();
        let later = now + Duration::from_millis(1);
        for number in 0..MOST + 10 {
            fail(&mut throttle, here, &format!("u{number}"), 1, later);
        }
        assert_eq!(throttle.failures.len(), MOST);
        // A new one counts all the same, and stays although others come after it.
        fail(&mut throttle, here, "admin", FREE, now);
        for number in 0..20 {
            fail(&mut throttle, here, &format!("v{number}"), 1, later);
        }
        assert!(throttle.begin(Some(here), "admin", now).is_err());
        assert_eq!(throttle.failures.len(), MOST);
        fail(&mut throttle, here, "new", 1, later + MEMORY);
        assert_eq!(throttle.failures.len(), 1);
    }
}
