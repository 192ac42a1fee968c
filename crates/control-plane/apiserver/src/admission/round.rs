//! Reinvocation: the webhooks and policies that are called again, because a later one changed the
//! object.

/// One kind of those who change objects: webhooks, or policies.
#[derive(Debug, Default)]
pub(super) struct MutationRound {
    /// Those who were asked and want to be asked again if need be.
    asked: Vec<String>,
    /// Those for whom need has come.
    due: Vec<String>,
    /// The object as they left it.
    left: Option<serde_json::Value>,
}

/// Both rounds of one write.
#[derive(Debug, Default)]
pub(super) struct MutationRounds {
    pub(super) policies: MutationRound,
    pub(super) webhooks: MutationRound,
    /// The object was changed: there will be a second round.
    pub(super) changed: bool,
    pub(super) second: bool,
}

impl MutationRound {
    /// The object was changed: those called before are to be called again.
    pub(super) fn object_changed(&mut self) {
        self.due.append(&mut self.asked);
    }

    /// `who` was asked, and wants to be asked again if the object changes.
    pub(super) fn was_asked(&mut self, who: &str) {
        self.asked.push(who.to_owned());
    }

    pub(super) fn is_due(&self, who: &str) -> bool {
        self.due.iter().any(|due| due == who)
    }

    /// The second round begins: changes to the object since the first one count as well.
    pub(super) fn resume(&mut self, object: Option<&serde_json::Value>) {
        if self.left.as_ref() != object {
            self.object_changed();
        }
    }

    pub(super) fn leave(&mut self, object: Option<&serde_json::Value>) {
        self.left = object.cloned();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_those_before_a_change_are_due() {
        let mut round = MutationRound::default();
        round.was_asked("first");
        round.object_changed();
        round.was_asked("second");
        assert!(round.is_due("first") && !round.is_due("second"));
        round.leave(Some(&json!(1)));
        round.resume(Some(&json!(1)));
        assert!(!round.is_due("second"));
        round.resume(Some(&json!(2)));
        assert!(round.is_due("second"));
    }
}
