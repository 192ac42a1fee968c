//! How many watches one user has open.

use std::collections::HashMap;
use std::sync::Arc;

use auth::User;
use parking_lot::Mutex;

use crate::status::{ApiError, ApiResult};

/// Open watches by user.
#[derive(Debug)]
pub(crate) struct WatchLimit {
    most: u32,
    open: Arc<Mutex<HashMap<String, u32>>>,
}

impl WatchLimit {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, open: Arc::default() }
    }

    /// Counts a watch; administrators are exempt.
    pub(crate) fn begin(&self, user: &User) -> ApiResult<Option<WatchSlot>> {
        if user.is_in(auth::user::MASTERS) {
            return Ok(None);
        }
        let mut open = self.open.lock();
        let count = open.get(&user.name).copied().unwrap_or(0);
        if count >= self.most {
            return Err(ApiError::too_many_requests(format!(
                "Too many requests, please try again later: user {:?} has {count} watches open",
                user.name
            )));
        }
        open.insert(user.name.clone(), count + 1);
        Ok(Some(WatchSlot { user: user.name.clone(), open: Arc::clone(&self.open) }))
    }
}

/// One open watch; dropping it makes room.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    user: String,
    open: Arc<Mutex<HashMap<String, u32>>>,
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_bounded_number_of_watches() {
        let limit = WatchLimit::new(2);
        let (jane, joe) = (User::new("jane", ["dev"]), User::new("joe", ["dev"]));
        let first = limit.begin(&jane).unwrap();
        let _second = limit.begin(&jane).unwrap();
        assert!(limit.begin(&jane).is_err());
        let others = limit.begin(&joe).unwrap();
        drop(first);
        let _third = limit.begin(&jane).unwrap();
        assert!(limit.begin(&jane).is_err());
        drop(others);
        assert_eq!(limit.open.lock().len(), 1, "users without watches are forgotten");
        let administrator = User::new("admin", [auth::user::MASTERS]);
        for _ in 0..5 {
            assert!(limit.begin(&administrator).unwrap().is_none());
        }
    }
}
