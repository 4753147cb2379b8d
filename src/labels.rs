//! Enums whose variants have a word each: in metrics, in logs, in the config file.

/// Defines an enum of such variants, written `Variant = "word",`: `ALL` variants, in their order, so that a variant's
/// number is its index; its word, `as_str`; and `WORDS`, the variants by their words.
macro_rules! labels {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $name:ident { $($(#[$of_variant:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name { $($(#[$of_variant])* $variant,)+ }

        #[allow(dead_code, reason = "not every such enum is listed, parsed and shown")]
        impl $name {
            /// All of them, in the order of their declaration.
            $visible const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];
            /// Each with its word.
            $visible const WORDS: [(&'static str, Self); Self::ALL.len()] = [$(($word, Self::$variant)),+];

            /// Its word.
            $visible const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}
pub(crate) use labels;
