//! The Dockerfile as its instructions.

use std::path::Path;

use crate::harness::documents::sources::read;

/// The instructions of the Dockerfile in order: `RUN` and what follows it, with continued lines joined.
#[derive(Debug)]
pub(crate) struct Dockerfile(Vec<(String, String)>);

impl Dockerfile {
    /// Reads the one of the repository.
    pub(crate) fn of_the_repository() -> Self {
        Self::parse(&read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let joined = lines.fold(String::new(), |joined, line| match line.strip_suffix('\\') {
            Some(continued) => joined + continued.trim_start(),
            None => joined + line.trim_start() + "\n",
        });
        let instruction = |line: &str| {
            let (word, rest) = line.split_once(' ')?;
            Some((word.to_owned(), rest.trim().to_owned()))
        };
        Self(joined.lines().filter_map(instruction).collect())
    }

    /// What follows each `word`, in order.
    pub(crate) fn all(&self, word: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == word).map(|(_, rest)| rest.as_str()).collect()
    }

    /// What follows the only `word`.
    #[track_caller]
    pub(crate) fn only(&self, word: &str) -> &str {
        let found = self.all(word);
        assert_eq!(found.len(), 1, "{word}: {found:?}");
        found[0]
    }

    /// The list of words behind the only `word`, as in `ENTRYPOINT ["tollgate"]`; options before the list are skipped.
    #[track_caller]
    pub(crate) fn words(&self, word: &str) -> Vec<String> {
        let text = self.only(word);
        let list = &text[text.find('[').unwrap_or_else(|| panic!("{word} runs a shell: {text}"))..];
        serde_json::from_str(list).unwrap_or_else(|error| panic!("{word}: {error}: {list}"))
    }

    /// The `NAME="value"` of the only `word`, which is `ENV` or `LABEL`.
    #[track_caller]
    pub(crate) fn pairs(&self, word: &str) -> Vec<(String, String)> {
        let mut rest = self.only(word);
        let mut pairs = Vec::new();
        while let Some((name, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"').unwrap_or_else(|| panic!("{word}: a quote is open"));
            pairs.push((name.trim().to_owned(), value.to_owned()));
            rest = after;
        }
        assert!(rest.trim().is_empty() && !pairs.is_empty(), "{word}: {rest}");
        pairs
    }
}

#[test]
fn instructions_are_read() {
    let file = Dockerfile::parse(
        "# a\nFROM x AS build\nRUN a && \\\n    b\nENV A=\"1 2\" \\\n  B=\"3\"\nCMD --x [\"a\", \"b\"]\n",
    );
    assert_eq!((file.only("FROM"), file.only("RUN")), ("x AS build", "a && b"));
    assert_eq!(file.pairs("ENV"), [("A", "1 2"), ("B", "3")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert_eq!(file.words("CMD"), ["a", "b"]);
}
