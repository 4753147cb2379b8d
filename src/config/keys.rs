//! The keys of the file, each declared once: name, type, range, default and description. [`ConfigTable`] reads a key by
//! its declaration, and the JSON Schema follows from all of them.
//!
//! [`keys!`] declares the keys of a table as the fields of a static. The documentation of a field is the description
//! that editors show; the default is added to it.
//!
//! ```ignore
//! keys! {
//!     /// How clients are served.
//!     pub(super) SERVER: ServerKeys = "[server]" {
//!         /// From the first byte of a request head to its last; then 408.
//!         header_timeout: Duration = duration() => Duration::from_secs(10);
//!     }
//! }
//! let header_timeout = table.value(&SERVER.header_timeout);
//! ```
//!
//! [`ConfigTable`]: super::table::ConfigTable

use std::fmt::Display;
use std::ops::Deref;
use std::time::Duration;

use super::units::{duration_in_words, size_in_words};
use super::value::ConfigValue;

/// A key of a table, whose value is a `T`.
pub(super) struct ConfigKey<T: 'static> {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) value: ValueType<T>,
    /// A value for the message that the key is missing.
    pub(super) example: &'static str,
    /// Whether each table has it.
    pub(super) required: bool,
}

/// A key with a default.
pub(super) struct DefaultedKey<T: 'static> {
    pub(super) key: ConfigKey<T>,
    pub(super) default: T,
}

impl<T> Deref for DefaultedKey<T> {
    type Target = ConfigKey<T>;

    fn deref(&self) -> &ConfigKey<T> {
        &self.key
    }
}

/// The type of a value: how it is read, and what the schema says of it.
pub(super) struct ValueType<T: 'static> {
    pub(super) schema: Schema,
    choices: &'static [(&'static str, T)],
    read: fn(&Self, &ConfigValue<'_>) -> Option<T>,
    /// A value as it stands in the file.
    written: fn(&Self, &T) -> String,
}

/// The type of a value that its section reads: only the schema knows more.
pub(super) struct Custom;

/// What the schema says of a value.
pub(super) enum Schema {
    /// Any string.
    Text,
    /// A string that is not empty.
    Name,
    /// A string of 1 to this many characters.
    TextUpTo(u32),
    /// A string that a regular expression (ECMA 262) finds.
    Matching(&'static str),
    /// A whole number from this to that.
    Whole(u64, u64),
    /// One of these numbers.
    Numbers(&'static [u32]),
    /// A number from 0 to 1.
    Share,
    /// `true` or `false`.
    Flag,
    /// A duration.
    Duration,
    /// A size from so many bytes to so many.
    Size(u64, u64),
    /// One of the words of the key's type.
    Choice,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A list of so many items.
    List(Length, &'static Self),
    /// A list of so many items, none twice.
    Set(Length, &'static Self),
    /// A table with so many keys of the user's choice: the names and the values.
    Map(Length, &'static Self, &'static Self),
    /// One of several.
    Either(&'static [Self]),
    /// A table with our keys.
    Table(&'static (dyn ConfigSection + Sync)),
    /// A definition, to which others refer.
    Named(&'static NamedSchema),
}

/// A definition of the schema.
pub(super) struct NamedSchema {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Schema,
}

/// The least and the greatest number of items of a list, or keys of a table.
pub(super) type Length = (u32, u32);

/// Any number of items.
pub(super) const ANY: Length = (0, u32::MAX);
/// At least one item.
pub(super) const SOME: Length = (1, u32::MAX);

/// A table of the file with keys of ours.
pub(super) trait ConfigSection {
    /// Its name in the schema: that of its static.
    fn name(&self) -> String;
    /// Its name in messages, without back-ticks.
    fn title(&self) -> &'static str;
    /// What it is for.
    fn description(&self) -> &'static str;
    /// Its keys in the order of their declaration, those of the sections that it includes last.
    fn keys(&self) -> Vec<&dyn DeclaredKey>;
    /// The keys of which a table has at least one; none if it may be empty.
    fn alternatives(&self) -> Vec<&'static str>;
}

/// What the schema says of a key.
pub(super) trait DeclaredKey {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What it is for.
    fn description(&self) -> &'static str;
    /// Its default as it stands in the file, which is JSON, too.
    fn default(&self) -> Option<String>;
    /// The type of its value.
    fn schema(&self) -> &Schema;
    /// The words of a choice.
    fn words(&self) -> Vec<&'static str>;
    /// Whether each table has it.
    fn is_required(&self) -> bool;
}

impl<T> DeclaredKey for ConfigKey<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        self.description
    }

    fn default(&self) -> Option<String> {
        None
    }

    fn schema(&self) -> &Schema {
        &self.value.schema
    }

    fn words(&self) -> Vec<&'static str> {
        self.value.choices.iter().map(|(word, _)| *word).collect()
    }

    fn is_required(&self) -> bool {
        self.required
    }
}

impl<T> DeclaredKey for DefaultedKey<T> {
    fn name(&self) -> &'static str {
        self.key.name
    }

    fn description(&self) -> &'static str {
        self.key.description
    }

    fn default(&self) -> Option<String> {
        Some((self.key.value.written)(&self.key.value, &self.default))
    }

    fn schema(&self) -> &Schema {
        self.key.schema()
    }

    fn words(&self) -> Vec<&'static str> {
        self.key.words()
    }

    fn is_required(&self) -> bool {
        false
    }
}

impl<T> ValueType<T> {
    /// Reads a value.
    pub(super) fn read(&self, value: &ConfigValue<'_>) -> Option<T> {
        (self.read)(self, value)
    }
}

/// A value that the section reads itself.
pub(super) const fn custom(schema: Schema) -> ValueType<Custom> {
    ValueType { schema, choices: &[], read: |_, _| None, written: |_, _| String::new() }
}

/// A duration from 1 ms to 366 days.
pub(super) const fn duration() -> ValueType<Duration> {
    ValueType {
        schema: Schema::Duration,
        choices: &[],
        read: |_, value| value.duration(),
        written: |_, default| format!("\"{}\"", duration_in_words(*default)),
    }
}

/// A whole number in a range.
pub(super) const fn count<T: TryFrom<u64> + Display>(min: u64, max: u64) -> ValueType<T> {
    ValueType {
        schema: Schema::Whole(min, max),
        choices: &[],
        read: |this, value| match this.schema {
            Schema::Whole(min, max) => T::try_from(value.whole(min..=max)?).ok(),
            _ => None,
        },
        written: |_, default| default.to_string(),
    }
}

/// A size in bytes, in a range.
pub(super) const fn size<T: TryFrom<u64> + Copy>(min: u64, max: u64) -> ValueType<T>
where
    u64: TryFrom<T>,
{
    ValueType {
        schema: Schema::Size(min, max),
        choices: &[],
        read: |this, value| match this.schema {
            Schema::Size(min, max) => T::try_from(value.size(min, max)?).ok(),
            _ => None,
        },
        written: |_, default| format!("\"{}\"", size_in_words(u64::try_from(*default).unwrap_or_default())),
    }
}

/// A number from 0 to 1.
pub(super) const fn share() -> ValueType<f64> {
    ValueType {
        schema: Schema::Share,
        choices: &[],
        read: |_, value| value.share(),
        written: |_, default| default.to_string(),
    }
}

/// `true` or `false`.
pub(super) const fn flag() -> ValueType<bool> {
    ValueType {
        schema: Schema::Flag,
        choices: &[],
        read: |_, value| value.boolean(),
        written: |_, default| default.to_string(),
    }
}

/// One of these words, with its meaning.
pub(super) const fn choice<T: Copy + PartialEq>(choices: &'static [(&'static str, T)]) -> ValueType<T> {
    ValueType {
        schema: Schema::Choice,
        choices,
        read: |this, value| value.choice(this.choices),
        written: |this, default| {
            let word = this.choices.iter().find(|(_, meaning)| meaning == default);
            format!("\"{}\"", word.map_or("", |(word, _)| word))
        },
    }
}

/// The words of a choice.
pub(super) const fn words<T, const COUNT: usize>(
    choices: &[(&'static str, T); COUNT],
) -> [&'static str; COUNT] {
    let mut words = [""; COUNT];
    let mut at = 0;
    while at < COUNT {
        words[at] = choices[at].0;
        at += 1;
    }
    words
}

/// Declares the keys of a table. See the module.
///
/// A key has a type that is read by its declaration (`: bool = flag()`), or a [`Schema`] for the schema alone, and then its
/// section reads it. `NAME as "key"` where the key is a word of Rust; `=> DEFAULT` after the type; `, required "EXAMPLE"`
/// for a key that each table has, `, example "EXAMPLE"` for one that some must have; `+ SECTION;` after the last key for
/// keys that several tables have; `one of "KEY", …;` at the end if a table has at least one of these.
macro_rules! keys {
    (
        $(#[doc = $description:literal])*
        $visibility:vis $section:ident: $type:ident = $title:literal {
            $(
                $(#[doc = $doc:literal])+
                $key:ident $(as $name:literal)? $(: $value:ty)? = $kind:expr $(=> $default:expr)?
                    $(, $need:ident $example:literal)?;
            )*
            $(+ $included:path;)*
            $(one of $($alternative:literal),+;)?
        }
    ) => {
        $visibility struct $type { $($visibility $key: keys!(@type [$($value)?] $(=> $default)?),)* }

        $(#[doc = $description])*
        $visibility static $section: $type = $type {
            $($key: keys!(@key
                $crate::config::keys::ConfigKey {
                    name: keys!(@name $key $($name)?),
                    description: concat!($($doc),+),
                    value: keys!(@value [$($value)?] $kind),
                    example: concat!($($example)?),
                    required: keys!(@required $($need)?),
                }
                $(=> $default)?
            ),)*
        };

        impl $crate::config::keys::ConfigSection for $type {
            fn name(&self) -> String {
                stringify!($section).to_lowercase()
            }

            fn title(&self) -> &'static str {
                $title
            }

            fn description(&self) -> &'static str {
                concat!($($description),*)
            }

            fn keys(&self) -> Vec<&dyn $crate::config::keys::DeclaredKey> {
                #[allow(unused_mut, reason = "not every section includes others")]
                let mut keys: Vec<&dyn $crate::config::keys::DeclaredKey> = vec![$(&self.$key),*];
                $(keys.extend($crate::config::keys::ConfigSection::keys(&$included));)*
                keys
            }

            fn alternatives(&self) -> Vec<&'static str> {
                #[allow(unused_mut, reason = "not every section includes others")]
                let mut alternatives = vec![$($($alternative),+)?];
                $(alternatives.extend($crate::config::keys::ConfigSection::alternatives(&$included));)*
                alternatives
            }
        }
    };
    (@type []) => { $crate::config::keys::ConfigKey<$crate::config::keys::Custom> };
    (@type [$value:ty]) => { $crate::config::keys::ConfigKey<$value> };
    (@type [$value:ty] => $default:expr) => { $crate::config::keys::DefaultedKey<$value> };
    (@value [] $schema:expr) => { $crate::config::keys::custom($schema) };
    (@value [$value:ty] $kind:expr) => { $kind };
    (@key $key:expr) => { $key };
    (@key $key:expr => $default:expr) => { $crate::config::keys::DefaultedKey { key: $key, default: $default } };
    (@name $key:ident) => { stringify!($key) };
    (@name $key:ident $name:literal) => { $name };
    (@required) => { false };
    (@required required) => { true };
    (@required example) => { false };
}
pub(super) use keys;
