//! Line charts as SVG, in the colours of the other pictures of the documentation.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;

const STYLE: &str = "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#59636e}.b{font-weight:600}
.l{stroke:#8c959f;fill:none}.q{stroke:#8c959f;stroke-dasharray:2 4;stroke-opacity:.6}
.s{fill:none;stroke-width:2}.s0{stroke:#0969da}.s1{stroke:#1a7f37}.s2{stroke:#9a6700}.s3{stroke:#cf222e}.s4{stroke:#8250df}
@media (prefers-color-scheme:dark){text{fill:#9198a1}.l,.q{stroke:#656c76}
.s0{stroke:#4493f8}.s1{stroke:#3fb950}.s2{stroke:#d29922}.s3{stroke:#f85149}.s4{stroke:#ab7df8}}";

/// How numbers lie on an axis.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// From, to, and the numbers that are written.
    Linear(f64, f64, &'static [f64]),
    /// The same by powers. Smaller numbers lie at the begin.
    Logarithmic(f64, f64, &'static [f64]),
}

/// A picture of the documentation.
pub(crate) struct Chart {
    /// The name of the file.
    pub(crate) file: &'static str,
    pub(crate) title: String,
    pub(crate) x: (Scale, &'static str),
    pub(crate) y: (Scale, &'static str),
    /// Names and points.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Scale {
    /// 0 to 1.
    fn place(self, number: f64) -> f64 {
        match self {
            Self::Linear(from, to, _) => (number - from) / (to - from),
            Self::Logarithmic(from, to, _) => (number.max(from) / from).ln() / (to / from).ln(),
        }
    }

    fn marks(self) -> &'static [f64] {
        let (Self::Linear(_, _, marks) | Self::Logarithmic(_, _, marks)) = self;
        marks
    }
}

fn across(scale: Scale, number: f64) -> f64 {
    LEFT + scale.place(number) * (WIDTH - LEFT - RIGHT)
}

fn down(scale: Scale, number: f64) -> f64 {
    HEIGHT - BOTTOM - scale.place(number) * (HEIGHT - TOP - BOTTOM)
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\">\n<title>{0}</title>\n<style>\n{STYLE}\n</style>\n\
             <text class=\"b\" x=\"{LEFT}\" y=\"16\">{0}</text>\n",
            self.title
        );
        self.axes(&mut svg);
        // Names that would lie upon each other move apart.
        let mut names: Vec<(f64, &str, usize)> = Vec::new();
        for (number, (name, points)) in self.lines.iter().enumerate() {
            let mut places = points.iter().map(|(x, y)| (across(self.x.0, *x), down(self.y.0, *y)));
            let path: String = places.clone().map(|(x, y)| format!("{x:.1} {y:.1} ")).collect();
            line(&mut svg, format_args!("<polyline class=\"s s{number}\" points=\"{}\"/>", path.trim_end()));
            let end = places.next_back().map_or(0.0, |(_, y)| y);
            names.push((end, name, number));
        }
        names.sort_by(|one, two| one.0.total_cmp(&two.0));
        let mut free = 0.0_f64;
        for (end, name, number) in names {
            let (y, x) = (end.max(free), WIDTH - RIGHT);
            free = y + 16.0;
            let (from, to, text) = (x + 8.0, x + 24.0, x + 30.0);
            line(&mut svg, format_args!("<path class=\"s s{number}\" d=\"M{from} {y:.1}H{to}\"/>"));
            line(&mut svg, format_args!("<text x=\"{text}\" y=\"{:.1}\">{name}</text>", y + 4.0));
        }
        svg + "</svg>\n"
    }

    fn axes(&self, svg: &mut String) {
        let (base, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for mark in self.y.0.marks() {
            let y = down(self.y.0, *mark);
            line(svg, format_args!("<path class=\"q\" d=\"M{LEFT} {y:.1}H{end}\"/>"));
            line(
                svg,
                format_args!(
                    "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
                    LEFT - 6.0,
                    y + 4.0
                ),
            );
        }
        for mark in self.x.0.marks() {
            let x = across(self.x.0, *mark);
            line(svg, format_args!("<path class=\"l\" d=\"M{x:.1} {base}v5\"/>"));
            line(
                svg,
                format_args!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{mark}</text>", base + 18.0),
            );
        }
        line(svg, format_args!("<path class=\"l\" d=\"M{LEFT} {TOP}V{base}H{end}\"/>"));
        line(svg, format_args!("<text x=\"{LEFT}\" y=\"{}\">{}</text>", HEIGHT - 14.0, self.x.1));
        line(svg, format_args!("<text x=\"{LEFT}\" y=\"{}\">{}</text>", TOP - 4.0, self.y.1));
    }
}

fn line(svg: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(svg, "{text}").expect("a string takes all");
}
