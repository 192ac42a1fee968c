//! How fast a scale target may change: bounds, policies and stabilization windows, over what
//! was recommended and done before: pure.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior,
};

/// For how long a lower recommendation waits where no window is given.
const SCALE_DOWN_WINDOW: i32 = 300;
/// Windows and periods are at most this long.
const HISTORY: SignedDuration = SignedDuration::from_hours(1);
const WITHIN_RANGE: (&str, &str) =
    ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

/// The recommendations for a target, and its changes of scale.
#[derive(Debug, Default)]
pub(crate) struct ScaleHistory {
    recommendations: VecDeque<(Timestamp, i32)>,
    /// Changes of the replica count: positive for growth.
    changes: VecDeque<(Timestamp, i32)>,
}

impl ScaleHistory {
    /// The first recommendation is what is there already.
    pub(crate) fn start(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push_back((now, current));
        }
    }

    pub(crate) fn note_change(&mut self, from: i32, to: i32, now: Timestamp) {
        self.changes.push_back((now, to - from));
    }

    fn note_recommendation(&mut self, replicas: i32, now: Timestamp) {
        self.recommendations.push_back((now, replicas));
        for list in [&mut self.recommendations, &mut self.changes] {
            while list.front().is_some_and(|(at, _)| now.duration_since(*at) > HISTORY) {
                list.pop_front();
            }
        }
    }

    fn recommended(&self, seconds: i32, now: Timestamp) -> impl Iterator<Item = i32> {
        let window = SignedDuration::from_secs(seconds.into());
        let recent = self.recommendations.iter();
        recent.filter(move |(at, _)| now.duration_since(*at) < window).map(|(_, count)| *count)
    }

    /// The replica count at the start of a period that ends now.
    fn count_before(&self, current: i32, seconds: i32, now: Timestamp) -> i32 {
        let period = SignedDuration::from_secs(seconds.into());
        let recent = self.changes.iter().filter(|(at, _)| now.duration_since(*at) < period);
        current - recent.map(|(_, change)| change).sum::<i32>()
    }
}

/// The limits of scaling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaleLimits<'a> {
    pub(crate) current: i32,
    pub(crate) min: i32,
    pub(crate) max: i32,
    pub(crate) behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    pub(crate) now: Timestamp,
}

/// A replica count within the limits, and why it is that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitedScale {
    pub(crate) replicas: i32,
    /// The recommendation was held back by earlier ones: reason and message.
    pub(crate) stabilized: Option<(&'static str, &'static str)>,
    pub(crate) is_limited: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

/// Notes a recommendation and reduces it to what may be done now.
pub(crate) fn limit(
    wanted: i32,
    limits: ScaleLimits<'_>,
    history: &mut ScaleHistory,
) -> LimitedScale {
    let stabilized = stabilize(wanted, limits, history);
    history.note_recommendation(wanted, limits.now);
    let (replicas, (reason, message)) = bound(stabilized, limits, history);
    let held = if limits.behavior.is_some() && wanted >= limits.current {
        (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        )
    } else {
        (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        )
    };
    LimitedScale {
        replicas,
        stabilized: (stabilized != wanted).then_some(held),
        is_limited: replicas != stabilized,
        reason,
        message,
    }
}

fn stabilize(wanted: i32, limits: ScaleLimits<'_>, history: &ScaleHistory) -> i32 {
    let Some(behavior) = limits.behavior else {
        let recent = history.recommended(SCALE_DOWN_WINDOW, limits.now);
        return recent.max().unwrap_or(wanted).max(wanted);
    };
    let window = |rules: Option<&HPAScalingRules>, default: i32| {
        rules.and_then(|rules| rules.stabilization_window_seconds).unwrap_or(default)
    };
    let up = window(behavior.scale_up.as_ref(), 0);
    let down = window(behavior.scale_down.as_ref(), SCALE_DOWN_WINDOW);
    let lowest = history.recommended(up, limits.now).min().unwrap_or(wanted).min(wanted);
    let highest = history.recommended(down, limits.now).max().unwrap_or(wanted).max(wanted);
    limits.current.max(lowest).min(highest)
}

fn bound(
    wanted: i32,
    limits: ScaleLimits<'_>,
    history: &ScaleHistory,
) -> (i32, (&'static str, &'static str)) {
    let ScaleLimits { current, min, max, behavior, .. } = limits;
    let (lowest, highest) = match behavior {
        None => (i32::MIN, current.saturating_mul(2).max(4)),
        Some(own) => (
            down_limit(own.scale_down.as_ref(), limits, history).min(current),
            up_limit(own.scale_up.as_ref(), limits, history).max(current),
        ),
    };
    let (most, too_many) = if max > highest { (highest, UP_LIMIT) } else { (max, TOO_MANY) };
    let (least, too_few) = if min < lowest { (lowest, DOWN_LIMIT) } else { (min, TOO_FEW) };
    if wanted > most {
        (most, too_many)
    } else if wanted < least {
        (least, too_few)
    } else {
        (wanted, WITHIN_RANGE)
    }
}

fn policy(kind: &str, value: i32) -> HPAScalingPolicy {
    HPAScalingPolicy { period_seconds: 15, type_: kind.to_owned(), value }
}

fn policies(
    rules: Option<&HPAScalingRules>,
    default: Vec<HPAScalingPolicy>,
) -> Vec<HPAScalingPolicy> {
    let own = rules.and_then(|rules| rules.policies.clone());
    own.filter(|own| !own.is_empty()).unwrap_or(default)
}

fn selects(rules: Option<&HPAScalingRules>) -> &str {
    rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max")
}

fn up_limit(
    rules: Option<&HPAScalingRules>,
    limits: ScaleLimits<'_>,
    history: &ScaleHistory,
) -> i32 {
    let default = vec![policy("Pods", 4), policy("Percent", 100)];
    let allowed = policies(rules, default).into_iter().map(|own| {
        let before = history.count_before(limits.current, own.period_seconds, limits.now);
        match own.type_.as_str() {
            "Pods" => before.saturating_add(own.value),
            _ => percent_of(before, 100_i64 + i64::from(own.value)),
        }
    });
    match selects(rules) {
        "Disabled" => Some(limits.current),
        "Min" => allowed.min(),
        _ => allowed.max(),
    }
    .unwrap_or(limits.current)
}

fn down_limit(
    rules: Option<&HPAScalingRules>,
    limits: ScaleLimits<'_>,
    history: &ScaleHistory,
) -> i32 {
    let allowed = policies(rules, vec![policy("Percent", 100)]).into_iter().map(|own| {
        let before = history.count_before(limits.current, own.period_seconds, limits.now);
        match own.type_.as_str() {
            "Pods" => before.saturating_sub(own.value),
            _ => i32::try_from(i64::from(before) * (100 - i64::from(own.value)) / 100)
                .unwrap_or_default(),
        }
    });
    match selects(rules) {
        "Disabled" => Some(limits.current),
        "Min" => allowed.max(),
        _ => allowed.min(),
    }
    .unwrap_or(limits.current)
}

/// Rounded up.
fn percent_of(count: i32, percent: i64) -> i32 {
    let hundredths = i64::from(count) * percent;
    i32::try_from((hundredths + 99).div_euclid(100)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn limited(
        current: i32,
        wanted: i32,
        behavior: &Value,
        history: &mut ScaleHistory,
    ) -> LimitedScale {
        let behavior: Option<HorizontalPodAutoscalerBehavior> =
            serde_json::from_value(behavior.clone()).unwrap();
        let limits =
            ScaleLimits { current, min: 2, max: 20, behavior: behavior.as_ref(), now: at(1000) };
        limit(wanted, limits, history)
    }

    #[test]
    fn counts_are_bounded_by_size_and_rate() {
        let slow = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0,
                "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]}});
        let least = json!({"scaleUp": {"selectPolicy": "Min",
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60}]}});
        let fixed = json!({"scaleDown": {"selectPolicy": "Disabled",
            "stabilizationWindowSeconds": 0}});
        for (current, wanted, behavior, expected, reason) in [
            (3, 3, &Value::Null, 3, "DesiredWithinRange"),
            (3, 1, &Value::Null, 2, "TooFewReplicas"),
            (1, 15, &Value::Null, 4, "ScaleUpLimit"),
            (5, 15, &Value::Null, 10, "ScaleUpLimit"),
            (15, 40, &Value::Null, 20, "TooManyReplicas"),
            (5, 15, &slow, 7, "ScaleUpLimit"),
            (10, 4, &slow, 9, "ScaleDownLimit"),
            (10, 14, &least, 11, "ScaleUpLimit"),
            (10, 4, &fixed, 10, "ScaleDownLimit"),
            (2, 9, &json!({}), 6, "ScaleUpLimit"),
        ] {
            let own = limited(current, wanted, behavior, &mut ScaleHistory::default());
            assert_eq!((own.replicas, own.reason), (expected, reason), "{current} {wanted}");
            assert_eq!(own.is_limited, reason != "DesiredWithinRange");
        }
    }

    #[test]
    fn scalings_in_the_period_count() {
        let slow = json!({"scaleUp": {"policies":
            [{"type": "Pods", "value": 4, "periodSeconds": 60}]}});
        let mut history = ScaleHistory::default();
        history.note_change(2, 5, at(970));
        assert_eq!(limited(5, 12, &slow, &mut history).replicas, 6, "one more in this minute");
        let mut history = ScaleHistory::default();
        history.note_change(2, 5, at(900));
        assert_eq!(limited(5, 12, &slow, &mut history).replicas, 9);
    }

    #[test]
    fn a_lower_recommendation_waits_for_the_window() {
        let mut history = ScaleHistory::default();
        history.start(8, at(800));
        let own = limited(8, 3, &Value::Null, &mut history);
        assert_eq!((own.replicas, own.stabilized.unwrap().0), (8, "ScaleDownStabilized"));
        let mut history = ScaleHistory::default();
        history.start(8, at(600));
        let own = limited(8, 3, &Value::Null, &mut history);
        assert_eq!((own.replicas, own.stabilized), (3, None));
    }

    #[test]
    fn a_higher_recommendation_waits_only_where_a_window_is_given() {
        let window = json!({"scaleUp": {"stabilizationWindowSeconds": 60}});
        let mut history = ScaleHistory::default();
        history.start(4, at(970));
        let own = limited(4, 6, &window, &mut history);
        assert_eq!((own.replicas, own.stabilized.unwrap().0), (4, "ScaleUpStabilized"));
        assert_eq!(limited(4, 6, &json!({}), &mut ScaleHistory::default()).replicas, 6);
    }

    #[test]
    fn history_older_than_an_hour_is_dropped() {
        let mut history = ScaleHistory::default();
        history.start(3, at(-4000));
        history.note_change(3, 4, at(-4000));
        limited(4, 4, &Value::Null, &mut history);
        assert_eq!((history.recommendations.len(), history.changes.len()), (1, 0));
    }
}
