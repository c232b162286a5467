//! Tables for people: columns that stay aligned, also with wide characters.

use unicode_width::UnicodeWidthStr;

/// Rows under a heading.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heading: &[&str]) -> Self {
        let heading = heading.iter().map(|&cell| cell.to_owned()).collect();
        Self {
            rows: vec![heading],
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text, two spaces between the columns and none at the ends of lines. `dress` may add
    /// colours to a cell, by its column.
    pub(super) fn text(&self, dress: impl Fn(usize, &str) -> String) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.width()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let last = row.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
            for (column, cell) in row.iter().enumerate().take(last + 1) {
                if column > 0 {
                    text.push_str("  ");
                }
                match number {
                    0 => text.push_str(cell),
                    _ => text.push_str(&dress(column, cell)),
                }
                if column < last {
                    let missing = widths[column].saturating_sub(cell.width());
                    text.extend(std::iter::repeat_n(' ', missing));
                }
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stay_aligned_with_wide_characters() {
        let mut table = Table::new(&["KEY", "STATE", "MORE"]);
        table.row(vec![
            "cli#世界".to_owned(),
            "done".to_owned(),
            String::new(),
        ]);
        table.row(vec!["cli#ab".to_owned(), String::new(), "x".to_owned()]);
        let expected = "KEY       STATE  MORE\ncli#世界  done\ncli#ab           x\n";
        assert_eq!(table.text(|_, cell| cell.to_owned()), expected);
    }
}
