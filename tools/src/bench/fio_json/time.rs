//! Dates as C's `ctime` writes them, in UTC.

/// Such as "Thu Oct  9 08:53:20 2025".
pub(super) fn ctime_utc(unix_seconds: u64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        WEEKDAYS[(days % 7) as usize],
        MONTHS[month],
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// Year, month from 0 and day from 1 of a day since 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, usize, u64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year and of its era.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = ((month_from_march + 2) % 12) as usize;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::ctime_utc;

    #[test]
    fn dates_are_written_as_ctime_does() {
        let rows = [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (951_868_800, "Wed Mar  1 00:00:00 2000"),
            (1_760_000_000, "Thu Oct  9 08:53:20 2025"),
            (4_102_444_799, "Thu Dec 31 23:59:59 2099"),
        ];
        for (seconds, text) in rows {
            assert_eq!(ctime_utc(seconds), text);
        }
    }
}
