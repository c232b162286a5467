//! Reading every record of a table, for people: a scan reads, and bills, all of it.

use super::attribute::{ID, STATUS};
use super::{DynamoDb, Item, from_item};
use crate::record::Record;
use crate::store::StoreError;

/// One page of a [scan](DynamoDb::scan).
#[derive(Debug)]
pub struct Page {
    /// The records on it, in no order.
    pub records: Vec<Record>,
    /// The items on it that can't be read as records.
    pub unreadable: Vec<StoreError>,
    /// How many items the service read for it, companions too.
    pub scanned: usize,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<Cursor>,
}

/// A place in a table where a scan goes on.
#[derive(Clone, Debug)]
pub struct Cursor(Item);

impl DynamoDb {
    /// Reads one page of all records, eventually consistently. Companions are left out.
    ///
    /// # Errors
    ///
    /// The service did not answer. An item that can't be read is no error: it is on the page.
    pub async fn scan(&self, from: Option<Cursor>) -> Result<Page, StoreError> {
        let output = self
            .client
            .scan()
            .table_name(&*self.table)
            .filter_expression("attribute_exists(#status)")
            .expression_attribute_names("#status", STATUS)
            .set_exclusive_start_key(from.map(|cursor| cursor.0))
            .send()
            .await
            .map_err(|error| self.failed("Scan", error))?;
        let mut page = Page {
            records: Vec::new(),
            unreadable: Vec::new(),
            scanned: usize::try_from(output.scanned_count).unwrap_or_default(),
            next: output.last_evaluated_key.map(Cursor),
        };
        for item in output.items.unwrap_or_default() {
            let id = item.get(ID).and_then(|id| id.as_s().ok());
            match from_item(id.map_or("", String::as_str), &item) {
                Ok(record) => page.records.push(record),
                Err(error) => page.unreadable.push(error),
            }
        }
        Ok(page)
    }
}
