//! How many watches one user has open.

use auth::User;
use base::{KeyedLimit, KeyedSlot};

use crate::status::{ApiError, ApiResult};

/// Open watches by user.
#[derive(Debug)]
pub(crate) struct WatchLimit(KeyedLimit);

impl WatchLimit {
    pub(crate) fn new(most: u32) -> Self {
        Self(KeyedLimit::new(most))
    }

    /// Counts a watch; administrators and the platform's own controllers are exempt.
    pub(crate) fn begin(&self, user: &User) -> ApiResult<Option<KeyedSlot>> {
        if user.is_in(auth::user::MASTERS) || user.is_in(auth::user::PLATFORM) {
            return Ok(None);
        }
        let slot = self.0.begin(&user.name).ok_or_else(|| {
            ApiError::too_many_requests(format!(
                "Too many requests, please try again later: user {:?} has {} watches open",
                user.name,
                self.0.most()
            ))
        })?;
        Ok(Some(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_bounded_number_of_watches() {
        let limit = WatchLimit::new(2);
        let jane = User::new("jane", ["dev"]);
        let _open = [limit.begin(&jane).unwrap(), limit.begin(&jane).unwrap()];
        assert!(limit.begin(&jane).is_err());
        for group in [auth::user::MASTERS, auth::user::PLATFORM] {
            let exempt = User::new("exempt", [group]);
            for _ in 0..5 {
                assert!(limit.begin(&exempt).unwrap().is_none(), "{group}");
            }
        }
    }
}
