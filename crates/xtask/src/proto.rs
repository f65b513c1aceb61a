//! The code made from `millpond-server/proto`: that of the server, and that of the client in its tests.
//!
//! Owns how it is made, and the check that it is current. Must never be part of a build: whoever builds Millpond needs
//! neither the generator nor the descriptions.
//!
//! After a change of a description: `cargo test -p xtask proto::write -- --ignored`.

use std::path::PathBuf;

/// One piece of generated code.
struct Generated {
    path: &'static str,
    title: &'static str,
    server: bool,
}

const ALL: [Generated; 2] = [
    Generated {
        path: "crates/millpond-server/src/scaler/externalscaler.rs",
        title: "//! KEDA's external scaler: messages and server.",
        server: true,
    },
    Generated {
        path: "crates/millpond-server/tests/it/scaler/externalscaler.rs",
        title: "//! KEDA's external scaler: messages and client.",
        server: false,
    },
];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Generated {
    fn text(&self) -> String {
        let directory = root().join("crates/millpond-server/proto");
        let described = protox::compile(["externalscaler.proto"], [directory]).unwrap();
        let out = tempfile::tempdir().unwrap();
        tonic_prost_build::configure()
            .build_server(self.server)
            .build_client(!self.server)
            .build_transport(false)
            .out_dir(out.path())
            .compile_fds(described)
            .unwrap();
        let code = std::fs::read_to_string(out.path().join("externalscaler.rs")).unwrap();
        format!(
            "{}\n//!\n//! Owns the wire format. Generated, see crates/xtask/src/proto.rs: must never be edited.\n\n{code}",
            self.title
        )
    }
}

#[test]
fn generated_code_is_current() {
    for generated in &ALL {
        let kept = std::fs::read_to_string(root().join(generated.path)).unwrap();
        let current = kept == generated.text();
        assert!(current, "{}: cargo test -p xtask proto::write -- --ignored", generated.path);
    }
}

#[test]
#[ignore = "writes the generated code"]
fn write() {
    for generated in &ALL {
        std::fs::write(root().join(generated.path), generated.text()).unwrap();
    }
}
