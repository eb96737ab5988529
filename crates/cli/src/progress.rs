//! Progress bars with rate and time left, on stderr, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a bar is redrawn at most, times a second.
const REDRAWS_PER_SECOND: u8 = 10;

/// A bar over `total` steps, or a spinner if the total is not known; hidden if `quiet` or stderr is no terminal.
///
/// `unit` is "bytes" or what is counted. The message stands behind the figures.
pub fn bar(total: Option<u64>, unit: &str, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)
    };
    let bar = ProgressBar::with_draw_target(total, target);
    let template = match (total.is_some(), unit) {
        (true, "bytes") => {
            "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}"
                .to_string()
        }
        (true, unit) => format!(
            "{{bar:30}} {{percent:>3}} %  {{human_pos}} of {{human_len}} {unit}  {{per_sec}}  {{eta}} left  {{msg}}"
        ),
        (false, "bytes") => "{spinner} {bytes}  {binary_bytes_per_sec}  {elapsed}  {msg}".to_string(),
        (false, unit) => format!("{{spinner}} {{human_pos}} {unit}  {{per_sec}}  {{elapsed}}  {{msg}}"),
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    if total.is_none() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}
