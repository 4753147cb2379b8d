//! The terminal: taken over at the start, and restored at every end.

use std::io::{self, BufWriter, Stdout, Write as _, stdout};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::style::ResetColor;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};

use super::draw::{Palette, draw};
use super::state::TopState;

/// The terminal while it belongs to the program. Dropping this restores the terminal.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    _restore: RestoreOnDrop,
}

impl Screen {
    /// Takes the terminal of standard output.
    pub(super) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enable_raw_mode()?;
        // From here on, an error restores the terminal, too.
        let restore = RestoreOnDrop;
        execute!(stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(stdout())))?;
        Ok(Self { terminal, _restore: restore })
    }

    /// Draws one picture. The terminal shows it at once: without a flicker also over a slow line.
    pub(super) fn draw(&mut self, state: &TopState, palette: Palette) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| draw(frame, state, palette))?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// The rows of the terminal.
    pub(super) fn height(&self) -> u16 {
        self.terminal.size().map(|size| size.height).unwrap_or_default()
    }
}

/// Restores the terminal.
struct RestoreOnDrop;

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        restore();
    }
}

/// Undoes all that [`Screen::open`] and drawing did. A terminal that is gone needs nothing.
fn restore() {
    let _ = execute!(stdout(), EndSynchronizedUpdate, ResetColor, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}
