use super::*;

fn canonical(text: &str) -> String {
    text.parse::<Quantity>().unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

#[test]
fn texts_become_canonical() {
    for (text, expected) in [
        ("0", "0"),
        ("0Gi", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("1024Mi", "1Gi"),
        ("1025Mi", "1025Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("8Mi", "8Mi"),
        ("1000Ki", "1000Ki"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.5", "1500m"),
        ("1.", "1."),
        ("1.500", "1.500"),
        ("100m", "100m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("10000", "10k"),
        ("1000000", "1M"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("10e2", "1e3"),
        ("1e4", "10e3"),
        ("1e-3", "1e-3"),
        ("1E", "1E"),
        ("12.123k", "12.123k"),
        ("-1500m", "-1500m"),
        ("-1024Mi", "-1Gi"),
        ("0.0000000001", "1n"),
        ("8Ei", "9223372036854775807"),
        ("10737418240", "10737418240"),
        ("1073741824Ki", "1Ti"),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
    }
}

#[test]
fn canonical_texts_stay_as_they_are() {
    for text in ["1", "500m", "1Gi", "1536Mi", "10k", "1e3", "10e3", "1n", "-1Gi", "1E"] {
        let once = canonical(text);
        assert_eq!(once, text);
        assert_eq!(canonical(&once), once);
    }
}

#[test]
fn other_texts_are_refused_in_upstream_s_words() {
    let error = |text: &str| text.parse::<Quantity>().unwrap_err().to_string();
    let format = "quantities must match the regular expression \
                      '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for text in ["", "lots", "1 Gi", "1Gi ", "1.2.3", "1Z", "1Gi!"] {
        assert_eq!(error(text), format, "{text:?}");
    }
    for text in ["1KiB".trim_end_matches('B').to_owned() + "i", "1mm".into(), "1e".into()] {
        assert_eq!(error(&text), "unable to parse quantity's suffix", "{text:?}");
    }
    assert_eq!(error("1e60"), "unable to parse numeric part of quantity");
}

#[test]
fn arithmetic_is_exact_and_keeps_the_format() {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    let sum = |a: &str, b: &str| (quantity(a) + &quantity(b)).to_string();
    assert_eq!(sum("1Gi", "512Mi"), "1536Mi");
    assert_eq!(sum("500m", "500m"), "1");
    assert_eq!(sum("0", "1Gi"), "1Gi");
    assert_eq!((quantity("1") - &quantity("1500m")).to_string(), "-500m");
    assert!(quantity("1Gi") > quantity("1G"));
    assert_eq!(quantity("1Gi"), quantity("1073741824"));
    assert_eq!(quantity("1500m").units(), 2);
    assert_eq!(quantity("-1500m").units(), -2);
    assert_eq!(quantity("1.5").millis(), 1500);
    assert_eq!(Quantity::from_bytes(1 << 30).to_string(), "1Gi");
    assert_eq!(Quantity::from_millis(2500).to_string(), "2500m");
}
