//! Tables for people at a terminal.

/// Columns as wide as their widest cell; an empty cell is a dash.
pub(super) fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count().max(1)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cell = if cell.is_empty() { "-" } else { cell };
            format!("{cell:<width$}")
        });
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

/// A number of bytes as people say it.
pub(super) fn size(bytes: i64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = UNITS.iter().find(|(shift, _)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    // One decimal, rounded to the nearest, from whole numbers.
    let tenths = (i128::from(bytes) * 10 + (1 << (shift - 1))) >> shift;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        rest => format!("{}.{rest} {unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_with_one_decimal() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.5 GiB"),
            (10 << 40, "10 TiB"),
            ((1 << 30) + 1, "1 GiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["NAME", "NODE"], ["data", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows), "NAME   NODE\ndata   -\n");
    }
}
