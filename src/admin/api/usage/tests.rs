//! Usage as CSV: what another reader reads is what was written.

use proptest::prelude::*;

use super::*;

const SPAN: UsageSpan =
    UsageSpan { begin: WallTime(1_793_491_200_000_000), end: WallTime(1_796_083_200_000_000) };

fn row(consumer: RowConsumer, units: i64) -> UsageRow {
    UsageRow { consumer, totals: UsageTotals { units, requests: 1 } }
}

fn named(name: &str, units: i64) -> UsageRow {
    row(RowConsumer::Named(name.into()), units)
}

#[test]
fn a_table_has_a_header_and_a_line_for_each_row() {
    let rows = [
        named("anna", 3_000),
        named("Müller, \"K\"", 20),
        named("=HYPERLINK(\"http://x\")", 7),
        named("-1", 6),
        named("'x", 5),
        named("(other)", 4),
        row(RowConsumer::Anonymous, 2),
        row(RowConsumer::Other, -1),
    ];
    let window = ",1,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z\r\n";
    let lines = [
        "anna,3000",
        "\"Müller, \"\"K\"\"\",20",
        "\"'=HYPERLINK(\"\"http://x\"\")\",7",
        "\"'-1\",6",
        "\"''x\",5",
        "\"'(other)\",4",
        ",2",
        "(other),-1",
    ];
    let expected: String = lines.iter().map(|line| format!("{line}{window}")).collect();
    let header = "consumer,units,requests,window_begin,window_end\r\n";
    assert_eq!(csv::write(&rows, SPAN), format!("{header}{expected}"));
}

#[test]
fn rows_with_the_most_units_are_listed_and_all_are_summed() {
    let rows = vec![named("b", 2), named("a", 2), named("c", 9), row(RowConsumer::Anonymous, 2)];
    let ListedUsage { rows, total } = ListedUsage::new(rows, 3);
    let names: Vec<_> = rows.into_iter().map(|row| row.consumer).collect();
    assert_eq!(names, ["c", "a", "b"].map(|name| RowConsumer::Named(name.into())));
    assert_eq!(total, UsageTotals { units: 15, requests: 4 });
}

proptest! {
    /// The `csv` crate reads each name and number as it was, and no cell is a formula.
    #[test]
    fn names_survive_a_table(names in proptest::collection::vec("[ -~\r\n\t＝ä]{0,8}", 0..6)) {
        let rows: Vec<_> = names.iter().zip(0..).map(|(name, units)| named(name, units)).collect();
        let table = csv::write(&rows, SPAN);
        let mut reader = ::csv::Reader::from_reader(table.as_bytes());
        let read: Vec<_> = reader.records().map(|record| record.unwrap()).collect();
        prop_assert_eq!(read.len(), names.len());
        for ((record, name), units) in read.iter().zip(&names).zip(0..) {
            let cell = &record[0];
            prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']));
            prop_assert_eq!(cell.strip_prefix('\'').unwrap_or(cell), name);
            prop_assert_eq!(&record[1], units.to_string());
        }
    }
}
