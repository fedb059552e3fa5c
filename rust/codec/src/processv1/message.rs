//! The messages of both directions.

use super::json::Reader;
use crate::error::Result;
use crate::framing::end_lines::WORD;
use crate::json::write::{integer, string, string_or_null};

/// From a core to a stitch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToStitch {
    /// Of a heartbeat its number, of an exit the exit code, of data the message's id.
    pub id: i64,
    /// Who sent the data.
    pub from_stitch_instance_id: Option<String>,
    /// The node of the sender.
    pub node_id: Option<String>,
    /// `_heartbeat`, `_exit`, or any name of data.
    pub channel_name: Option<String>,
    /// The content.
    pub data: Option<String>,
}

/// From a stitch to its core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FromStitch {
    /// `sync`, `ack`, `fail`, `logs` or `data`; a core drops everything else.
    pub command: Option<String>,
    /// Of the message that it answers.
    pub id: i64,
    /// The channel that data is sent in.
    pub data_channel: Option<String>,
    /// The content.
    pub data: Option<String>,
    /// Lines for the core's log.
    pub logs: Option<Vec<String>>,
    /// To all stitches of a group.
    pub to_group_name: Option<String>,
    /// To one stitch.
    pub to_stitch_instance_id: Option<String>,
}

/// A message that can be read from a frame, and written as one.
pub trait Message: Default {
    /// Takes the value of the member `name`; false if there is no such member, and nothing was taken.
    #[doc(hidden)]
    fn member(&mut self, name: &str, value: &mut Value<'_, '_>) -> Result<bool>;

    /// The message's JSON on one line, appended.
    #[doc(hidden)]
    fn json(&self, out: &mut Vec<u8>);

    /// The frame: ASCII JSON on one line, and the terminator.
    #[must_use]
    fn to_frame(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.json(&mut out);
        out.push(b'\n');
        out.extend_from_slice(WORD);
        out.push(b'\n');
        out
    }
}

/// A member's value in the frame.
#[derive(Debug)]
pub struct Value<'r, 'a>(pub(super) &'r mut Reader<'a>);

impl Value<'_, '_> {
    fn integer(&mut self, field: &'static str) -> Result<i64> {
        self.0.integer().map_err(|error| error.in_field_if_typed(field))
    }

    fn text(&mut self, field: &'static str) -> Result<Option<String>> {
        let text = self.0.text().map_err(|error| error.in_field_if_typed(field))?;
        Ok(text.map(std::borrow::Cow::into_owned))
    }

    fn texts(&mut self, field: &'static str) -> Result<Option<Vec<String>>> {
        self.0.texts().map_err(|error| error.in_field_if_typed(field))
    }
}

/// The one of `names` that `name` is, in any case.
fn known(name: &str, names: &[&'static str]) -> Option<&'static str> {
    names.iter().find(|known| known.eq_ignore_ascii_case(name)).copied()
}

impl Message for ToStitch {
    fn member(&mut self, name: &str, value: &mut Value<'_, '_>) -> Result<bool> {
        let field = known(name, &["Id", "FromStitchInstanceId", "NodeId", "ChannelName", "Data"]);
        match field {
            Some(field @ "Id") => self.id = value.integer(field)?,
            Some(field @ "FromStitchInstanceId") => self.from_stitch_instance_id = value.text(field)?,
            Some(field @ "NodeId") => self.node_id = value.text(field)?,
            Some(field @ "ChannelName") => self.channel_name = value.text(field)?,
            Some(field) => self.data = value.text(field)?,
            None => {}
        }
        Ok(field.is_some())
    }

    fn json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"Id\":");
        integer(self.id, out);
        for (name, text) in [
            ("FromStitchInstanceId", &self.from_stitch_instance_id),
            ("NodeId", &self.node_id),
            ("ChannelName", &self.channel_name),
            ("Data", &self.data),
        ] {
            out.push(b',');
            string(name, out);
            out.push(b':');
            string_or_null(text.as_deref(), out);
        }
        out.push(b'}');
    }
}

impl Message for FromStitch {
    fn member(&mut self, name: &str, value: &mut Value<'_, '_>) -> Result<bool> {
        let names = ["Command", "Id", "DataChannel", "Data", "Logs", "ToGroupName", "ToStitchInstanceId"];
        let field = known(name, &names);
        match field {
            Some(field @ "Command") => self.command = value.text(field)?,
            Some(field @ "Id") => self.id = value.integer(field)?,
            Some(field @ "DataChannel") => self.data_channel = value.text(field)?,
            Some(field @ "Data") => self.data = value.text(field)?,
            Some(field @ "Logs") => self.logs = value.texts(field)?,
            Some(field @ "ToGroupName") => self.to_group_name = value.text(field)?,
            Some(field) => self.to_stitch_instance_id = value.text(field)?,
            None => {}
        }
        Ok(field.is_some())
    }

    /// Members that the command does not need are left out.
    fn json(&self, out: &mut Vec<u8>) {
        fn member(name: &str, text: Option<&String>, out: &mut Vec<u8>) {
            if let Some(text) = text {
                out.push(b',');
                string(name, out);
                out.push(b':');
                string(text, out);
            }
        }
        out.extend_from_slice(b"{\"Command\":");
        string_or_null(self.command.as_deref(), out);
        out.extend_from_slice(b",\"Id\":");
        integer(self.id, out);
        member("DataChannel", self.data_channel.as_ref(), out);
        member("Data", self.data.as_ref(), out);
        if let Some(lines) = &self.logs {
            out.extend_from_slice(b",\"Logs\":[");
            for (index, line) in lines.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                string(line, out);
            }
            out.push(b']');
        }
        member("ToGroupName", self.to_group_name.as_ref(), out);
        member("ToStitchInstanceId", self.to_stitch_instance_id.as_ref(), out);
        out.push(b'}');
    }
}
