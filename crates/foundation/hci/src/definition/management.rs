//! Rancher's kinds that belong to the login, and its projects.

use crd::record::Field as _;

use super::{AGE, Column, DefinitionScope, DefinitionVersion, KindDefinition, kind};
use crate::harvester::management::{
    LocalUser, LoginToken, ManagementSetting, Project, ProjectRoleTemplateBinding, RoleTemplate,
};

const GROUP: &str = "management.cattle.io";
const THREE: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v3", stored: true, deprecated: None }];

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("Username", "string", ".username", "", 0),
            Column("Enabled", "boolean", ".enabled", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "User", "users", &[], THREE, LocalUser::schema)
    },
    KindDefinition {
        columns: &[
            Column("User", "string", ".userId", "", 0),
            Column("Expires", "string", ".expiresAt", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "Token", "tokens", &[], THREE, LoginToken::schema)
    },
    KindDefinition {
        columns: &[Column("Value", "string", ".value", "", 0)],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "Setting", "settings", &[], THREE, ManagementSetting::schema)
    },
    KindDefinition {
        columns: &[Column("Name", "string", ".spec.displayName", "", 0), AGE],
        ..kind(GROUP, "Project", "projects", &[], THREE, Project::schema)
    },
    KindDefinition {
        columns: &[
            Column("Project", "string", ".projectName", "", 0),
            Column("Role", "string", ".roleTemplateName", "", 0),
            AGE,
        ],
        ..kind(
            GROUP,
            "ProjectRoleTemplateBinding",
            "projectroletemplatebindings",
            &[],
            THREE,
            ProjectRoleTemplateBinding::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Name", "string", ".displayName", "", 0),
            Column("Context", "string", ".context", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "RoleTemplate", "roletemplates", &[], THREE, RoleTemplate::schema)
    },
];
