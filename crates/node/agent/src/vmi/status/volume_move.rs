//! The part of the status that describes volumes that move to other claims.

use serde_json::Value;
use virt::reason::VolumesChange;

use super::condition::Conditions;

/// As upstream says it.
const MIGRATE: &str = "migrate volumes";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeMove {
    pub(crate) volume: String,
    pub(crate) state: VolumeMoveState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VolumeMoveState {
    /// For something that is not there yet.
    Waiting(String),
    Copying,
    /// The guest is on either claim.
    Switching,
    /// It is on the source, and the copy is tried again.
    Failed(String),
    Switched,
    Canceled,
}

impl VolumeMoveState {
    fn is_over(&self) -> bool {
        matches!(self, Self::Switched | Self::Canceled)
    }
}

/// The condition of all moves together: the one that matters most to whoever starts the machine
/// again, then the one that needs help.
pub(super) fn set_condition(conditions: &mut Conditions, moves: &[VolumeMove]) {
    const KIND: &str = "VolumesChange";
    let first = |wanted: fn(&VolumeMoveState) -> Option<&str>| {
        moves.iter().find_map(|own| wanted(&own.state))
    };
    let is_switching = moves.iter().any(|own| own.state == VolumeMoveState::Switching);
    let failed = first(|state| match state {
        VolumeMoveState::Failed(why) => Some(why),
        _ => None,
    });
    let under_way = first(|state| match state {
        VolumeMoveState::Waiting(why) => Some(why),
        VolumeMoveState::Copying => Some(MIGRATE),
        _ => None,
    });
    if moves.is_empty() {
        return;
    }
    let because = if is_switching {
        (VolumesChange::Switching, MIGRATE)
    } else if let Some(why) = failed {
        (VolumesChange::Failed, why)
    } else if let Some(what) = under_way {
        (VolumesChange::Copying, what)
    } else if moves.iter().any(|own| own.state == VolumeMoveState::Canceled) {
        return conditions.no(KIND, VolumesChange::Canceled.as_str(), "");
    } else {
        return conditions.remove(KIND);
    };
    conditions.because(KIND, because.0.as_str(), because.1);
}

/// The entries of `migratedVolumes` whose moves are not over; nothing if none is.
pub(super) fn unfinished(status: &Value, moves: &[VolumeMove]) -> Option<Value> {
    let is_over = |entry: &Value| {
        moves.iter().any(|own| own.state.is_over() && entry["volumeName"] == own.volume.as_str())
    };
    let have = status["migratedVolumes"].as_array()?;
    if !have.iter().any(is_over) {
        return None;
    }
    let rest: Vec<Value> = have.iter().filter(|entry| !is_over(entry)).cloned().collect();
    Some(if rest.is_empty() { Value::Null } else { rest.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn moved(volume: &str, state: VolumeMoveState) -> VolumeMove {
        VolumeMove { volume: volume.into(), state }
    }

    #[test]
    fn the_condition_reports_the_most_important_state_first() {
        use VolumeMoveState as State;
        let failed = State::Failed("no room".into());
        for (states, expected) in [
            (vec![], Some(("True", "Old", "old"))),
            (vec![State::Copying], Some(("True", "CopyingVolumes", MIGRATE))),
            (vec![State::Waiting("w".into())], Some(("True", "CopyingVolumes", "w"))),
            (vec![State::Copying, failed.clone()], Some(("True", "VolumeCopyFailed", "no room"))),
            (vec![failed, State::Switching], Some(("True", "SwitchingVolumes", MIGRATE))),
            (vec![State::Switched, State::Copying], Some(("True", "CopyingVolumes", MIGRATE))),
            (vec![State::Switched], None),
            (
                vec![State::Switched, State::Canceled],
                Some(("False", "VolumesChangeCancellation", "")),
            ),
        ] {
            let moves: Vec<_> = states.into_iter().map(|state| moved("v", state)).collect();
            let before = json!([{"type": "VolumesChange", "status": "True", "reason": "Old",
                "message": "old", "lastTransitionTime": "t"}]);
            let mut conditions = Conditions::new(&before, "now".into());
            set_condition(&mut conditions, &moves);
            let found = conditions.finish();
            let text = |field: &str| found[0][field].as_str().unwrap_or_default();
            let reported =
                found[0].is_object().then(|| (text("status"), text("reason"), text("message")));
            assert_eq!(reported, expected, "{moves:?}");
        }
    }

    #[test]
    fn a_volume_leaves_the_list_when_its_move_is_over() {
        let status = json!({"migratedVolumes": [{"volumeName": "a"}, {"volumeName": "b"}]});
        let (a, b) = (moved("a", VolumeMoveState::Switched), moved("b", VolumeMoveState::Copying));
        assert_eq!(unfinished(&status, std::slice::from_ref(&b)), None);
        let rest = Some(json!([{"volumeName": "b"}]));
        assert_eq!(unfinished(&status, &[a.clone(), b]), rest);
        let b = moved("b", VolumeMoveState::Canceled);
        assert_eq!(unfinished(&status, &[a.clone(), b]), Some(Value::Null));
        assert_eq!(unfinished(&json!({}), &[a]), None);
    }
}
