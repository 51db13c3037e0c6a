//! Text in columns.

/// Which way the cells behind the first column lean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells, as wide as their widest.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table under `header`, which may be empty.
    pub(crate) fn new(header: Vec<String>) -> Table {
        Table { header, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, without spaces at their ends; nothing without rows. `dress` is given the finished header line.
    pub(crate) fn render(&self, align: Align, dress: impl Fn(&str) -> String) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let columns = self.rows.iter().chain([&self.header]).map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.header]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut text = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let gap = if column > 0 && widths[column - 1] > 0 { "  " } else { "" };
                // Names lean left, and so does a second column that says whose figures follow.
                let left =
                    column == 0 || align == Align::Left || (column == 1 && self.header.get(1).is_some_and(String::is_empty));
                text.push_str(gap);
                match left {
                    true => text.extend([cell.as_str(), &pad]),
                    false => text.extend([pad.as_str(), cell]),
                }
            }
            text.trim_end().to_owned()
        };
        let mut out = String::new();
        if !self.header.is_empty() {
            out.push_str(&dress(&line(&self.header)));
            out.push('\n');
        }
        for row in &self.rows {
            out.push_str(&line(row));
            out.push('\n');
        }
        out
    }
}
