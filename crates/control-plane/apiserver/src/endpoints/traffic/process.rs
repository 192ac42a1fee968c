//! Resource usage of this process, with the metrics of every Prometheus client.

use rustix::param::{clock_ticks_per_second, page_size};

use super::MetricsPage;

/// A metric: its name, its type, a help text and the value.
type Metric = (&'static str, &'static str, &'static str, f64);

/// Nothing where the system does not report it.
pub(super) fn render(page: &mut MetricsPage) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    let boot = std::fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text));
    if let (Some(stat), Some(boot)) = (read("stat"), boot) {
        let ticks = clock_ticks_per_second() as f64;
        for (name, kind, help, value) in usage(&stat, ticks, page_size() as f64, boot) {
            page.head(name, kind, help);
            page.line(name, "", value);
        }
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        page.head("process_open_fds", "gauge", "Open files.");
        page.line("process_open_fds", "", open.count() as f64);
    }
    if let Some(most) = read("limits").and_then(|text| most_files(&text)) {
        page.head("process_max_fds", "gauge", "How many files may be open.");
        page.line("process_max_fds", "", most);
    }
}

/// From the text of `/proc/self/stat`, whose second field may hold anything.
fn usage(stat: &str, ticks: f64, page: f64, boot: f64) -> Vec<Metric> {
    let Some((_, rest)) = stat.rsplit_once(')') else { return Vec::new() };
    let fields: Vec<f64> =
        rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    // The third field of the file is the first of these.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0.0);
    let seconds = (field(14) + field(15)) / ticks;
    let start = boot + field(22) / ticks;
    vec![
        ("process_cpu_seconds_total", "counter", "Processor time.", seconds),
        ("process_start_time_seconds", "gauge", "When it was started.", start),
        ("process_virtual_memory_bytes", "gauge", "Address space.", field(23)),
        ("process_resident_memory_bytes", "gauge", "Memory that is mapped.", field(24) * page),
    ]
}

/// From the text of `/proc/stat`, in seconds since 1970.
fn boot_time(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// From the text of `/proc/self/limits`.
fn most_files(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_texts_are_understood() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 8 0 1000 4096000 25 1";
        let values: Vec<f64> =
            usage(stat, 100.0, 4096.0, 5000.0).iter().map(|(.., value)| *value).collect();
        assert_eq!(values, [2.0, 5010.0, 4_096_000.0, 102_400.0]);
        assert_eq!(usage("nonsense", 100.0, 4096.0, 0.0), []);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1.7e9));
        let limits =
            "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(most_files(limits), Some(1024.0));
    }

    #[test]
    fn this_process_takes_something() {
        let mut page = MetricsPage::default();
        render(&mut page);
        for name in
            ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"]
        {
            let line = page.0.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            let value: f64 = line.unwrap_or_default().parse().unwrap_or(-1.0);
            assert!(value >= 0.0, "{name} in\n{}", page.0);
        }
    }
}
