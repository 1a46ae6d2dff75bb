"""Every setting is read from each of its places, and an error names the wrong one."""

import os

import pytest
from pydantic import ValidationError

from service.errors import StartupError
from service.settings import PREFIX, Settings, read_settings, unknown_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIX) or name == "XDG_DATA_HOME":
            monkeypatch.delenv(name)


def test_without_any_the_service_listens_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    settings = read_settings()
    assert (settings.host, settings.port, settings.cors_origins, settings.log_level) == ("127.0.0.1", 8000, (), "info")
    assert settings.database_url == "sqlite:////somebody/.local/share/traincost/traincost.db"


def test_the_database_stands_in_the_data_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert read_settings().database_url == "sqlite:////data/traincost/traincost.db"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")  # to be ignored, says the XDG base directory specification
    assert "not/absolute" not in read_settings().database_url


def test_a_user_without_a_home_has_to_name_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> None:
        raise RuntimeError

    monkeypatch.setattr("service.settings.Path.home", homeless)
    with pytest.raises(StartupError, match="TRAINCOST_DATABASE_URL"):
        read_settings()
    assert read_settings(database_url="sqlite:////x.db").database_url == "sqlite:////x.db"


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_PORT", "9000")
    monkeypatch.setenv("TRAINCOST_HOST", "0.0.0.0")  # noqa: S104
    settings = read_settings(port="9001", host=None)
    assert (settings.host, settings.port) == ("0.0.0.0", 9001)  # noqa: S104


def test_an_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_PORT", "")
    assert read_settings().port == 8000


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_CORS_ORIGINS", "https://tools.example.org, http://localhost:3000,")
    assert read_settings().cors_origins == ("https://tools.example.org", "http://localhost:3000")
    monkeypatch.setenv("TRAINCOST_HOST_NAMES", "Tools.example.org, 10.0.0.7")
    assert read_settings().host_names == ("tools.example.org", "10.0.0.7")
    monkeypatch.setenv("TRAINCOST_CORS_ORIGINS", "*")
    assert read_settings().cors_origins == ("*",)
    monkeypatch.setenv("TRAINCOST_FRAME_ANCESTORS", "https://wiki.example.org,https://tools.example.org")
    assert read_settings().frame_ancestors == ("https://wiki.example.org", "https://tools.example.org")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRAINCOST_PORT", "eighty"),
        ("TRAINCOST_PORT", "-1"),
        ("TRAINCOST_PORT", "65536"),
        ("TRAINCOST_PORT", "tcp://10.0.0.1:8000"),
        ("TRAINCOST_LOG_LEVEL", "loud"),
        ("TRAINCOST_HOST", "x" * 256),
        ("TRAINCOST_CORS_ORIGINS", "tools.example.org"),
        ("TRAINCOST_HOST_NAMES", "https://tools.example.org"),
        ("TRAINCOST_HOST_NAMES", "tools.example.org:8000"),
        ("TRAINCOST_CORS_ORIGINS", "https://tools.example.org/page"),
        ("TRAINCOST_CORS_ORIGINS", "ftp://tools.example.org"),
        ("TRAINCOST_CONNECTIONS", "0"),
        ("TRAINCOST_TRUSTED_PROXIES", "*"),
        ("TRAINCOST_TRUSTED_PROXIES", "proxy.example.org"),
        ("TRAINCOST_TRUSTED_PROXIES", "10.0.0.1/8"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StartupError, match=f"^{name}: ") as refusal:
        read_settings()
    assert "\n" not in str(refusal.value)


def test_a_wrong_option_is_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(StartupError, match=r"^--port: "):
        read_settings(port="eighty")


def test_what_looks_like_a_setting_and_is_none_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unknown_settings() == []
    for name in ("TRAINCOST_URL", "TRAINCOST_TOKEN", "TRAINCOST_KEY", "TRAINCOST_PORT", "TRAINCOST_UI_SERVICE_HOST"):
        monkeypatch.setenv(name, "8000")
    monkeypatch.setenv("TRAINCOST_UI_PORT_80_TCP_ADDR", "10.0.0.1")
    assert unknown_settings() == []
    monkeypatch.setenv("TRAINCOST_LOGLEVEL_OF_ALL", "debug")
    monkeypatch.setenv("TRAINCOST_XYZ", "1")
    near, far = unknown_settings()
    assert near.startswith(
        "TRAINCOST_LOGLEVEL_OF_ALL is no setting, and changes nothing; did you mean TRAINCOST_LOG_LEVEL"
    )
    assert far.startswith("TRAINCOST_XYZ is no setting, and changes nothing")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("TRAINCOST_DATABSE_URL", "TRAINCOST_DATABASE_URL"),
        ("TRAINCOST_PROT", "TRAINCOST_PORT"),
        ("TRAINCOST_CORS_ORIGIN", "TRAINCOST_CORS_ORIGINS"),
    ],
)
def test_a_misspelt_setting_is_refused_with_its_right_name(
    monkeypatch: pytest.MonkeyPatch, wrong: str, right: str
) -> None:
    monkeypatch.setenv(wrong, "something")
    with pytest.raises(StartupError, match=f"{wrong} is not a setting; did you mean {right}"):
        read_settings()


@pytest.mark.parametrize("name", ["TRAINCOST_SERVICE_PORT", "TRAINCOST_PORT_8000_TCP", "TRAINCOST_TEST_DATABASE_URL"])
def test_variables_of_others_are_let_be(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "something")
    assert read_settings().port == 8000


def test_settings_are_frozen_and_keep_the_password_to_themselves() -> None:
    settings = Settings(database_url="postgresql://somebody:secret@db.example.org/costs")
    assert "secret" not in repr(settings)
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1


def test_every_setting_is_explained() -> None:
    assert all(field.description for field in Settings.model_fields.values())
