//! Metrics of the work queues of controllers, under upstream's names.

use base::{Durations, Workloads};

use super::MetricsPage;

pub(super) fn render(loads: &Workloads, page: &mut MetricsPage) {
    let all = loads.all();
    if all.is_empty() {
        return;
    }
    let counts = [
        ("workqueue_adds_total", "counter", "Keys that were added to a queue."),
        ("workqueue_depth", "gauge", "Keys that are ready and wait."),
        ("workqueue_retries_total", "counter", "Keys that will be tried again."),
    ];
    for (at, (name, kind, help)) in counts.into_iter().enumerate() {
        page.head(name, kind, help);
        for (queue, load) in &all {
            page.line(name, &format!("name=\"{queue}\""), load.counts()[at] as f64);
        }
    }
    let name = "workqueue_queue_duration_seconds";
    page.head(name, "histogram", "How long keys were ready before they were worked on.");
    for (queue, load) in &all {
        histogram(page, name, queue, &load.waited);
    }
    let name = "workqueue_work_duration_seconds";
    page.head(name, "histogram", "How long keys were worked on.");
    for (queue, load) in &all {
        histogram(page, name, queue, &load.worked);
    }
}

fn histogram(page: &mut MetricsPage, name: &str, queue: &str, durations: &Durations) {
    let labels = format!("name=\"{queue}\"");
    let bucket = format!("{name}_bucket");
    for (end, below) in durations.up_to() {
        page.line(&bucket, &format!("{labels},le=\"{end}\""), below as f64);
    }
    let (count, seconds) = durations.sum();
    page.line(&bucket, &format!("{labels},le=\"+Inf\""), count as f64);
    page.line(&format!("{name}_sum"), &labels, seconds);
    page.line(&format!("{name}_count"), &labels, count as f64);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn queues_are_reported_by_name() {
        let (loads, mut page) = (Workloads::default(), MetricsPage::default());
        render(&loads, &mut page);
        assert_eq!(page.0, "", "no controller runs here");
        loads.of("claim").report((7, 2));
        loads.of("claim").waited.note(Duration::from_millis(3));
        render(&loads, &mut page);
        for line in [
            "workqueue_adds_total{name=\"claim\"} 7",
            "workqueue_depth{name=\"claim\"} 2",
            "workqueue_queue_duration_seconds_bucket{name=\"claim\",le=\"0.001\"} 0",
            "workqueue_queue_duration_seconds_bucket{name=\"claim\",le=\"0.01\"} 1",
            "workqueue_work_duration_seconds_count{name=\"claim\"} 0",
        ] {
            assert!(page.0.lines().any(|found| found == line), "{line}\nin\n{}", page.0);
        }
    }
}
