//! Collected figures and how they are shown.

use std::time::Duration;

/// One measured number with the limit it is held to.
#[derive(Debug)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    limit: Option<Limit>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    Most(f64),
    Least(f64),
}

#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.push(name.into(), value, unit, None);
    }

    pub(crate) fn held(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: Limit,
    ) {
        self.push(name.into(), value, unit, Some(limit));
    }

    fn push(&mut self, name: String, value: f64, unit: &'static str, limit: Option<Limit>) {
        let figure = Figure { name, value, unit, limit };
        show(&figure);
        self.0.push(figure);
    }

    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// The closing table: the missed limits, and by how much.
    pub(crate) fn print(&self) {
        let missed: Vec<&Figure> = self.0.iter().filter(|figure| !figure.is_met()).collect();
        let held = self.0.iter().filter(|figure| figure.limit.is_some()).count();
        line(&format!("\n{} of {held} limits met", held - missed.len()));
        for figure in missed {
            show(figure);
        }
    }
}

impl Figure {
    fn is_met(&self) -> bool {
        match self.limit {
            None => true,
            Some(Limit::Most(most)) => self.value <= most,
            Some(Limit::Least(least)) => self.value >= least,
        }
    }
}

fn show(figure: &Figure) {
    let limit = match figure.limit {
        None => String::new(),
        Some(Limit::Most(most)) => format!("  limit ≤ {most}"),
        Some(Limit::Least(least)) => format!("  limit ≥ {least}"),
    };
    let mark = if figure.is_met() { "" } else { "  MISSED" };
    line(&format!("{:<52} {:>10.1} {:<8}{limit}{mark}", figure.name, figure.value, figure.unit));
}

#[expect(clippy::print_stdout, reason = "printing is what this program is for")]
fn line(text: &str) {
    println!("{text}");
}

/// The value below which `share` of the samples lie, in milliseconds.
pub(crate) fn percentile(samples: &mut [Duration], share: f64) -> f64 {
    samples.sort();
    let last = samples.len().saturating_sub(1);
    let at = ((last as f64) * share).round() as usize;
    samples.get(at).map_or(0.0, |sample| sample.as_secs_f64() * 1e3)
}
