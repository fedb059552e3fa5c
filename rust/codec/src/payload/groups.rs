//! Rows of several writers: decoded writer by writer, and put back in their order.
//!
//! A decoder has one schema at a time, and a shard with two producers must not become a hundred small batches.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array, new_null_array};
use arrow_schema::{FieldRef, Fields};
use arrow_select::concat::concat;
use arrow_select::take::take;

use super::reader::Writer;

/// A good row: its writer, and its body as the writer has checked it.
pub(crate) type Good<'a> = (Arc<dyn Writer>, Cow<'a, [u8]>);

/// Rows of one writer: their places, and their bodies.
struct Group<'a> {
    writer: Arc<dyn Writer>,
    places: Vec<usize>,
    bodies: Vec<Cow<'a, [u8]>>,
}

/// The columns of rows, null where there is no good one; and the rows that a decoder has refused all the same.
pub(crate) fn columns(fields: &Fields, rows: Vec<Option<Good<'_>>>) -> (Vec<ArrayRef>, Vec<usize>) {
    let mut places: Vec<Option<u32>> = vec![None; rows.len()];
    let mut refused = Vec::new();
    let mut pieces: Vec<Vec<ArrayRef>> = Vec::new();
    let mut next = 0;
    for group in groups(rows) {
        for (columns, at) in group.decode(&mut refused) {
            for row in at {
                places[row] = Some(next);
                next += 1;
            }
            pieces.push(columns);
        }
    }
    let in_order = pieces.len() == 1 && places.iter().all(Option::is_some);
    let columns = if in_order { pieces.remove(0) } else { put_back(fields, &pieces, places) };
    (columns, refused)
}

fn groups(rows: Vec<Option<Good<'_>>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (place, row) in rows.into_iter().enumerate() {
        let Some((writer, body)) = row else { continue };
        // Few writers write to a shard, and the last one is nearly always the right one.
        let group = groups.iter().rposition(|group| Arc::ptr_eq(&group.writer, &writer)).unwrap_or_else(|| {
            groups.push(Group { writer, places: Vec::new(), bodies: Vec::new() });
            groups.len() - 1
        });
        groups[group].places.push(place);
        groups[group].bodies.push(body);
    }
    groups
}

impl Group<'_> {
    /// All rows at once; or each by itself, if the check has let something through that the decoder refuses.
    fn decode(self, refused: &mut Vec<usize>) -> Vec<(Vec<ArrayRef>, Vec<usize>)> {
        if let Some(columns) = attempt(&*self.writer, &self.bodies) {
            return vec![(columns, self.places)];
        }
        debug_assert!(false, "a check has let something through that its decoder refuses");
        let mut decoded = Vec::new();
        for (place, body) in self.places.into_iter().zip(&self.bodies) {
            match attempt(&*self.writer, std::slice::from_ref(body)) {
                Some(columns) => decoded.push((columns, vec![place])),
                None => refused.push(place),
            }
        }
        decoded
    }
}

/// The rows' columns. A decoder that panics has refused them: one record must not end a consumer.
fn attempt(writer: &dyn Writer, bodies: &[Cow<'_, [u8]>]) -> Option<Vec<ArrayRef>> {
    // A writer is not changed by what it decodes, so none is left half changed.
    catch_unwind(AssertUnwindSafe(|| writer.decode(bodies))).ok().flatten()
}

/// The rows of all pieces at their places.
fn put_back(fields: &Fields, pieces: &[Vec<ArrayRef>], places: Vec<Option<u32>>) -> Vec<ArrayRef> {
    let places = UInt32Array::from(places);
    let column = |(index, field): (usize, &FieldRef)| {
        if pieces.is_empty() {
            return new_null_array(field.data_type(), places.len());
        }
        let parts: Vec<&dyn Array> = pieces.iter().map(|columns| columns[index].as_ref()).collect();
        let all = concat(&parts).expect("pieces have the types of the fields, and bounded sizes");
        take(&all, &places, None).expect("places are within the pieces")
    };
    fields.iter().enumerate().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::reader::Checked;

    #[derive(Debug)]
    struct Panics;

    impl Writer for Panics {
        fn check<'a>(&self, body: Cow<'a, [u8]>, _: usize) -> Option<Checked<'a>> {
            Some(Checked { body, cost: 0 })
        }

        fn decode(&self, _: &[Cow<'_, [u8]>]) -> Option<Vec<ArrayRef>> {
            panic!("a fault of a decoder")
        }

        #[cfg(feature = "fuzzing")]
        fn is_stricter(&self, _: &[u8], _: usize) -> bool {
            true
        }
    }

    #[test]
    fn a_decoder_that_panics_has_refused_its_rows() {
        assert!(attempt(&Panics, &[Cow::Borrowed(b"row")]).is_none());
    }
}
