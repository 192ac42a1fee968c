use super::*;

fn flags(text: &str) -> Result<Vec<String>, String> {
    let file: Value = serde_saphyr::from_str(text).unwrap();
    translate(&file).map(|it| it.flags).map_err(|error| error.to_string())
}

#[test]
fn keys_are_the_flags_of_the_server() {
    let text = "
listen: 0.0.0.0:6443
no_agent: true
tls-san: [a.example, b.example]
event_ttl: 60
encrypt-secrets: false
";
    let expected = [
        "--listen=0.0.0.0:6443",
        "--no-agent",
        "--tls-san=a.example",
        "--tls-san=b.example",
        "--event-ttl=60",
        "--encrypt-secrets=false",
    ];
    let mut expected = expected.map(str::to_owned).to_vec();
    let mut found = flags(text).unwrap();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(flags("").unwrap(), Vec::<String>::new());
}

#[test]
fn a_file_of_the_installer_configures_a_node() {
    let text = "
scheme_version: 1
server_url: https://10.0.0.1:443
token: SHEAF1abc
os:
  hostname: n2
  labels: {zone: rack-1}
  ssh_authorized_keys: [k]
install:
  mode: join
  role: worker
  device: /dev/sda
  automatic: true
system_settings:
  overcommit-config: '{\"cpu\":200}'
";
    let file: Value = serde_saphyr::from_str(text).unwrap();
    let mut found = translate(&file).unwrap();
    found.flags.sort();
    let expected = [
        "--join=https://10.0.0.1:6443",
        "--node-label=zone=rack-1",
        "--node-name=n2",
        "--role=worker",
        "--system-setting=overcommit-config={\"cpu\":200}",
        "--token=SHEAF1abc",
    ];
    assert_eq!(found.flags, expected);
    let mut ignored: Vec<&str> = found.ignored.iter().map(|(key, _)| key.as_str()).collect();
    ignored.sort_unstable();
    assert_eq!(ignored, ["install.automatic", "install.device", "os.ssh_authorized_keys"]);
}

#[test]
fn the_virtual_address_of_the_installer_is_a_flag() {
    let text = "install: {mode: create, vip: 10.0.0.9, vip_mode: static, vip_hw_addr: 'x'}";
    assert_eq!(flags(text).unwrap(), ["--vip=10.0.0.9"]);
}

#[test]
fn a_witness_takes_its_flags_of_the_file() {
    let text = "
server_url: https://10.0.0.1
token: SHEAF1abc
listen: 0.0.0.0:6443
os: {hostname: x1}
install: {mode: join, role: witness, cluster_pod_cidr: 10.60.0.0/24}
";
    let file: Value = serde_saphyr::from_str(text).unwrap();
    let mut found = translate(&file).unwrap();
    found.keep(&flags_of(WITNESS));
    found.flags.sort();
    assert_eq!(
        found.flags,
        ["--join=https://10.0.0.1:6443", "--node-name=x1", "--token=SHEAF1abc"]
    );
    let mut ignored: Vec<&str> = found.ignored.iter().map(|(key, _)| key.as_str()).collect();
    ignored.sort_unstable();
    assert_eq!(ignored, ["guest-network", "listen"]);
    // The same file makes a witness of `sheaf server`.
    let line = ["sheaf", "server"].map(str::to_owned).into_iter();
    let cli = <Cli as clap::Parser>::try_parse_from(line.chain(translate(&file).unwrap().flags));
    let super::super::Command::Server(args) = cli.unwrap().command else { panic!() };
    assert_eq!(args.role, Some(super::super::NodeRole::Witness));
}

#[test]
fn a_url_gets_the_port_of_the_api() {
    for (given, expected) in [
        ("https://10.0.0.1", "--join=https://10.0.0.1:6443"),
        ("https://10.0.0.1:443/", "--join=https://10.0.0.1:6443"),
        ("https://node:7443", "--join=https://node:7443"),
        ("https://[fd00::1]", "--join=https://[fd00::1]:6443"),
        ("https://[fd00::1]:7443", "--join=https://[fd00::1]:7443"),
    ] {
        assert_eq!(flags(&format!("server_url: {given:?}")).unwrap(), [expected]);
    }
}

#[test]
fn mistakes_name_the_key_and_what_would_be_valid() {
    for (text, part) in [
        ("lisen: 1.2.3.4:5", "unknown key \"lisen\"; did you mean \"listen\"?"),
        ("banana: 1", "unknown key \"banana\"; keys are the flags of `sheaf server`"),
        ("config: /x", "unknown key \"config\""),
        ("no-agent: maybe", "no-agent: expected true or false, found \"maybe\""),
        ("listen: {a: 1}", "listen: expected a text or a number, found {\"a\":1}"),
        ("[a]", "the file is not a map of keys to values"),
        ("scheme_version: 2", "scheme_version: expected 1, found 2"),
        ("server_url: http://a", "server_url: expected a URL such as https://10.0.0.1:6443"),
        ("server_url: https://a/b", "server_url: expected a URL"),
        ("install: {mode: upgrade}", "install.mode: expected create or join, found \"upgrade\""),
        ("install: {vip_mode: dhcp}", "install.vip_mode: expected static"),
        ("install: {banana: 1}", "unknown key \"install.banana\""),
        ("os: 3", "os: expected a map, found 3"),
    ] {
        let error = flags(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn the_command_line_names_the_file() {
    let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
    assert_eq!(named(&words("--a --config /f")), Some("/f".into()));
    assert_eq!(named(&words("--config=/f --a")), Some("/f".into()));
    assert_eq!(named(&words("--a")), None);
    // Other commands have no configuration file.
    let line = words("sheaf version --config /nowhere");
    assert_eq!(extend(line.clone()).unwrap(), line);
    let error = extend(words("sheaf server --config /nowhere")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere");
}

#[test]
fn the_command_line_wins_over_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "listen: 0.0.0.0:6443\nlog-level: debug\ntls-san: [a]\n").unwrap();
    let path = file.path().to_str().unwrap();
    let line = format!("sheaf server --config {path} --listen 127.0.0.1:7443 --tls-san b");
    let words = extend(line.split(' ').map(OsString::from).collect()).unwrap();
    let cli = <Cli as clap::Parser>::try_parse_from(words).unwrap();
    let super::super::Command::Server(args) = cli.command else { panic!() };
    assert_eq!(args.listen.to_string(), "127.0.0.1:7443");
    assert_eq!((args.log_level.as_str(), args.tls_san), ("debug", vec!["a".into(), "b".into()]));
}
